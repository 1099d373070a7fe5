package cli

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/topo/hostd"
)

// Commands work on a rack elsewhere by its control sockets, and their texts have the words that its users type.
func TestElsewhere(t *testing.T) {
	r, err := rackfile.ParseFile("x", []byte("hosts:\n  - {name: \"cn[0-1]\", role: compute}\n  - {name: ms0, role: memory}\n"))
	if err != nil {
		t.Fatal(err)
	}
	r.Name = "r0"
	dir, err := os.MkdirTemp("", "far") //nolint:usetesting // short, for the sockets' paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	e := &Elsewhere{Rack: r, Paths: rackfile.Paths{Dir: dir}, Name: "kubectl-rdmalab", Program: "kubectl rdmalab -n lab", Further: []string{"status"}}
	if err := os.MkdirAll(filepath.Dir(e.Paths.Socket("x")), 0o700); err != nil {
		t.Fatal(err)
	}
	m := new(control.Mux)
	control.Handle(m, "GET "+hostd.PathQPs, func(*http.Request, struct{}) (hostd.Objects, error) { return hostd.Objects{Name: "cn0"}, nil })
	s, err := control.Serve(e.Paths.Socket("cn0"), m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	for words, want := range map[string]struct {
		status int
		said   []string
	}{
		"qps cn0":           {0, []string{"cn0 has no queue pair"}},
		"qps cn1":           {1, []string{"kubectl-rdmalab: ", "not running"}},
		"qps cn7":           {2, []string{"kubectl-rdmalab: ", "has no host", "cn0 cn1 ms0"}},
		"qps":               {2, []string{"`kubectl rdmalab -n lab qps r0 --help`"}},
		"qps cn0 --rack r0": {2, []string{"leave out --rack", "`kubectl rdmalab -n lab qps r0`"}},
		"qps --help":        {0, []string{"kubectl rdmalab -n lab qps r0 HOST"}},
		"up":                {2, []string{"unknown command"}},
		"exec cn0 -- ls":    {2, []string{"unknown command"}},
	} {
		var out bytes.Buffer
		status := e.Run(t.Context(), strings.NewReader(""), &out, &out, strings.Fields(words)...)
		if status != want.status || strings.Contains(out.String(), "`rdmalab ") || want.status != 0 && strings.Count(out.String(), "\n") != 1 {
			t.Errorf("%s: status %d, want %d: %s", words, status, want.status, &out)
		}
		for _, text := range want.said {
			if !strings.Contains(out.String(), text) {
				t.Errorf("%s: %q is missing in: %s", words, text, &out)
			}
		}
	}
	list := e.Commands()
	for _, name := range append([]string{"kvcs", "clover"}, reachable...) {
		if list[name] == "" {
			t.Errorf("command %s is missing", name)
		}
	}
	if text := (hints{far: e, root: rootCmd(reachableCommands()...)}).text("see `rdmalab status` and rdmalab counters, but rdmalab is a word"); text != "see `kubectl rdmalab -n lab status r0` and kubectl rdmalab -n lab counters r0, but rdmalab is a word" {
		t.Error(text)
	}
}
