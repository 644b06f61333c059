package units

import (
	"errors"
	"math"
	"testing"
	"time"
)

func TestFromSeconds(t *testing.T) {
	for _, c := range []struct {
		in   float64
		want time.Duration
		err  error
	}{
		{0, 0, nil},
		{0.2511, 251_100_000, nil},
		{2.4631, 2_463_100_000, nil},
		{5e-05, 50_000, nil},
		{1e-9, 1, nil},
		{4e-10, 0, nil},
		{-48, -48 * time.Second, nil},
		{27536.660701067, 27536660701067, nil},
		{math.NaN(), 0, ErrNotFinite},
		{math.Inf(1), 0, ErrNotFinite},
		{1e300, 0, ErrOverflow},
		{9.3e9, 0, ErrOverflow},
		{-1e300, 0, ErrOverflow},
	} {
		got, err := FromSeconds(c.in)
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("FromSeconds(%v) = %d, %v; want %d, %v", c.in, got, err, c.want, c.err)
		}
	}
}

func TestParse(t *testing.T) {
	if d, err := ParseDuration(" 1.25ms"); d != 1_250_000 || err != nil {
		t.Errorf("%v, %v", d, err)
	}
	for _, bad := range []string{"", "5", "ms", "1.5 apples"} {
		if _, err := ParseDuration(bad); !errors.Is(err, ErrSyntax) {
			t.Errorf("ParseDuration(%q): %v", bad, err)
		}
	}
	for in, want := range map[string]int64{"512": 512, "64KiB": 65536, "2GiB": 2 << 30, "100MB": 100e6, "1.5k": 1536, "7 MiB": 7 << 20} {
		if got, err := ParseBytes(in); got != want || err != nil {
			t.Errorf("ParseBytes(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, bad := range []string{"", "x", "-1", "1XB", "9e30", "NaN", "1KM"} {
		if v, err := ParseBytes(bad); err == nil {
			t.Errorf("ParseBytes(%q) = %d", bad, v)
		}
	}
}

// Each boundary and its neighbour.
func TestDuration(t *testing.T) {
	for _, c := range []struct {
		d, res time.Duration
		want   string
	}{
		{0, 0, "0 ns"},
		{999, 1, "999 ns"},
		{1000, 1, "1 µs"},
		{1500, 1, "1.5 µs"},
		{999_999, 1, "1000 µs"},
		{time.Millisecond, 1, "1 ms"},
		{12_345_678, 1, "12.35 ms"},
		{time.Second, 1, "1 s"},
		{90 * time.Second, 1, "90 s"},
		{599 * time.Second, 1, "599 s"},
		{10 * time.Minute, 1, "10 min"},
		{10 * time.Hour, 1, "10 h"},
		{-1500 * time.Millisecond, 1, "-1.5 s"},
		// No digit finer than the clock, and a bound below its step.
		{5 * time.Second, time.Second, "5 s"},
		{1234 * time.Millisecond, 100 * time.Millisecond, "1.2 s"},
		{300 * time.Millisecond, time.Second, "< 1 s"},
		{3 * time.Millisecond, time.Millisecond, "3 ms"},
		{0, time.Second, "0 s"},
	} {
		if got := Duration(c.d, c.res); got != c.want {
			t.Errorf("Duration(%d, %v) = %q, want %q", c.d, c.res, got, c.want)
		}
	}
}

func TestScaleFormat(t *testing.T) {
	s := CommonScale(250*time.Millisecond, 3*time.Second)
	if s.Name != "s" {
		t.Fatalf("scale %v", s)
	}
	for d, want := range map[time.Duration]string{
		250 * time.Millisecond: "0.250", 3 * time.Second: "3.000", 12_345 * time.Millisecond: "12.35",
		123_456 * time.Millisecond: "123.5", 0: "0",
	} {
		if got := s.Format(d, 1); got != want {
			t.Errorf("Format(%v) = %q, want %q", d, got, want)
		}
	}
	if got := s.Format(1234*time.Millisecond, time.Second); got != "1" {
		t.Errorf("with a clock of a second: %q", got)
	}
}

func TestText(t *testing.T) {
	for in, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1234567: "-1,234,567"} {
		if got := Count(in); got != want {
			t.Errorf("Count(%d) = %q", in, got)
		}
	}
	for in, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 3 << 30: "3.0 GiB"} {
		if got := Bytes(in); got != want {
			t.Errorf("Bytes(%d) = %q", in, got)
		}
	}
	for in, want := range map[float64]string{0: "0 %", 1: "100 %", 0.9999: "> 99.9 %", 0.0001: "< 0.1 %", 0.943: "94.3 %", math.NaN(): "—"} {
		if got := Percent(in); got != want {
			t.Errorf("Percent(%v) = %q, want %q", in, got, want)
		}
	}
	for in, want := range map[float64]string{0: "0", 3: "3", 3.14159: "3.142", 23.4567: "23.46", 363.636: "363.6", 12345.6: "12,346"} {
		if got := Number(in); got != want {
			t.Errorf("Number(%v) = %q, want %q", in, got, want)
		}
	}
}
