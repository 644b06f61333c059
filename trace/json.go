package trace

import (
	"bytes"
	"encoding/json"
)

// MarshalJSON writes the value, or null where it is absent.
func (o Opt[T]) MarshalJSON() ([]byte, error) {
	if !o.ok {
		return []byte("null"), nil
	}
	return json.Marshal(o.v)
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (o *Opt[T]) UnmarshalJSON(b []byte) error {
	*o = Opt[T]{}
	if bytes.Equal(b, []byte("null")) {
		return nil
	}
	o.ok = true
	return json.Unmarshal(b, &o.v)
}
