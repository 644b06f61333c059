package main

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// words is a writer that others wait for.
type words struct {
	sync.Mutex
	b strings.Builder
}

func (w *words) Write(p []byte) (int, error) {
	w.Lock()
	defer w.Unlock()
	return w.b.Write(p)
}

func (w *words) String() string {
	w.Lock()
	defer w.Unlock()
	return w.b.String()
}

// The web view is served until the run is interrupted, to local names only, and
// leaves nothing behind.
func TestWeb(t *testing.T) {
	saved := t.TempDir()
	t.Setenv("PPROF_TMPDIR", saved) // where pprof saves what it fetches
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stderr words
	status := make(chan int, 1)
	go func() {
		status <- run(ctx, []string{"web", "--no-browser", "--http", ":0", filepath.Join(root, "samples", "vllm-v1.jsonl")}, strings.NewReader(""), io.Discard, &stderr)
	}()
	address := regexp.MustCompile(`http://(127\.0\.0\.1|\[::1\]):\d+`)
	var base string
	for base == "" {
		select {
		case s := <-status:
			t.Fatalf("ended with %d: %s", s, stderr.String())
		case <-time.After(10 * time.Millisecond):
			base = address.FindString(stderr.String())
		}
	}
	get := func(path, host string) (int, string) {
		req, err := http.NewRequest(http.MethodGet, base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if host != "" {
			req.Host = host
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(body)
	}
	for _, c := range []struct {
		path, host string
		status     int
		body       string
	}{
		{"/", "", 200, "queueing"},
		{"/ui/flamegraph", "", 200, "slots"},
		{"/ui/top?f=slots", "localhost", 200, "slots"},
		{"/ui/nothing", "", 404, ""},
		{"/ui/top", "example.com", 403, "localhost only"},
	} {
		if s, body := get(c.path, c.host); s != c.status || !strings.Contains(body, c.body) {
			t.Errorf("GET %s as %q: %d, %.200s", c.path, c.host, s, body)
		}
	}
	cancel()
	if s := <-status; s != 0 {
		t.Errorf("status %d: %s", s, stderr.String())
	}
	if left, err := os.ReadDir(saved); err != nil || len(left) > 0 {
		t.Errorf("files were left: %v, %v", left, err)
	}
}
