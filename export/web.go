package export

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/google/pprof/driver"
	"github.com/google/pprof/profile"

	"github.com/traceview/traceview/analyze"
)

// WebOptions say how [Web] serves.
type WebOptions struct {
	Listener net.Listener // closed at the end
	Browser  bool         // open one
	Say      func(string) // what pprof has to say: the address, errors
}

// Web serves pprof's web view of the stacks until ctx ends, which is no error.
// A listener on loopback answers to local names only, so that no page of
// another site can read it. Pages that draw a graph need graphviz; flame graph,
// top, peek and the rest do not.
func Web(ctx context.Context, s *analyze.Stacks, o WebOptions) error {
	p, err := toProfile(s)
	if err != nil {
		return fmt.Errorf("pprof: %w", err)
	}
	addr := o.Listener.Addr().String()
	flags := &webFlags{flag.NewFlagSet("pprof", flag.ContinueOnError), addr}
	return driver.PProf(&driver.Options{
		Flagset:    flags,
		Fetch:      fetched{p},
		Sym:        symbolized{},
		UI:         webUI{o},
		HTTPServer: func(args *driver.HTTPServerArgs) error { return serve(ctx, o.Listener, args.Handlers) },
	})
}

// serve serves pprof's handlers below /ui/, as pprof itself does.
func serve(ctx context.Context, l net.Listener, handlers map[string]http.Handler) error {
	host, _, _ := net.SplitHostPort(l.Addr().String())
	ip := net.ParseIP(host)
	local := ip != nil && ip.IsLoopback()
	mux := http.NewServeMux()
	mux.Handle("/ui/", http.StripPrefix("/ui", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h := handlers[r.URL.Path]; h != nil {
			h.ServeHTTP(w, r)
			return
		}
		http.NotFound(w, r)
	})))
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/ui/flamegraph?"+r.URL.RawQuery, http.StatusTemporaryRedirect)
	})
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if local && !localName(r.Host) {
				http.Error(w, "this server answers to localhost only", http.StatusForbidden)
				return
			}
			mux.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: 10 * time.Second,
	}
	stop := context.AfterFunc(ctx, func() { srv.Close() })
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// localName reports whether a Host header names this machine's loopback.
func localName(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// fetched is the profile that pprof asks for, whatever the name. It names no
// address that it came from: what does, pprof saves in the user's home.
type fetched struct{ p *profile.Profile }

func (f fetched) Fetch(string, time.Duration, time.Duration) (*profile.Profile, string, error) {
	return f.p, "", nil
}

// symbolized does nothing: the names are in the profile.
type symbolized struct{}

func (symbolized) Symbolize(string, driver.MappingSources, *profile.Profile) error { return nil }

// webFlags gives pprof the command line that opens its web view.
type webFlags struct {
	*flag.FlagSet
	addr string
}

func (f *webFlags) StringList(name, def, usage string) *[]*string {
	return &[]*string{f.String(name, def, usage)}
}
func (f *webFlags) ExtraUsage() string   { return "" }
func (f *webFlags) AddExtraUsage(string) {}
func (f *webFlags) Parse(func()) []string {
	if err := f.Set("http", f.addr); err != nil {
		return nil
	}
	return []string{"traceview"}
}

// webUI hands on what pprof has to say. It asks nothing.
type webUI struct{ o WebOptions }

func (u webUI) say(args []any)                      { u.o.Say(strings.TrimSpace(fmt.Sprint(args...))) }
func (u webUI) Print(args ...any)                   { u.say(args) }
func (u webUI) PrintErr(args ...any)                { u.say(args) }
func (u webUI) ReadLine(string) (string, error)     { return "", errors.New("no terminal") }
func (u webUI) IsTerminal() bool                    { return false }
func (u webUI) WantBrowser() bool                   { return u.o.Browser }
func (u webUI) SetAutoComplete(func(string) string) {}
