package container

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
)

// startTestWatcher runs a watcher on a fake engine until the end of the test.
func startTestWatcher(t *testing.T, f *fakeEngine) (status func() Watch, logged *strings.Builder) {
	t.Helper()
	paths := rackfile.Paths{Dir: t.TempDir()}
	if err := os.MkdirAll(filepath.Dir(paths.Socket("x")), 0o755); err != nil {
		t.Fatal(err)
	}
	logged = &strings.Builder{}
	w := &watcher{
		plugger: plugger{rack: testRack(t, "r"), paths: paths}, hosts: NewHosts("r", Settings{Socket: f.socket}),
		log: slog.New(slog.NewTextHandler(logged, nil)), state: make(map[string]*hostWatch), engine: "not heard yet",
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.run(ctx, filepath.Join(t.TempDir(), "plugin.sock")) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	client := control.NewClient(paths.Socket(WatcherName))
	return func() (s Watch) {
		var raw json.RawMessage
		for range 1000 {
			if client.Call(t.Context(), "GET", "/status", nil, &raw) == nil {
				if err := json.Unmarshal(raw, &s); err != nil {
					t.Fatal(err)
				}
				return s
			}
			time.Sleep(5 * time.Millisecond) // the watcher may not listen yet
		}
		t.Fatal("the watcher does not answer")
		return s
	}, logged
}

// until polls the status until ok holds.
func until(t *testing.T, status func() Watch, what string, ok func(Watch) bool) {
	t.Helper()
	var s Watch
	for begin := time.Now(); time.Since(begin) < 20*time.Second; time.Sleep(5 * time.Millisecond) {
		if s = status(); ok(s) {
			return
		}
	}
	t.Fatalf("%s: not reached; %+v", what, s)
}

func event(what, host string) string {
	return fmt.Sprintf(`{"Type":"container","Action":%q,"Actor":{"ID":"1","Attributes":{"rdmalab.rack":"r","rdmalab.host":%q}},"timeNano":%d}`, what, host, time.Now().UnixNano())
}

// The watcher records events under their host, ignores those of other containers, and reads events
// again after the engine was restarted.
func TestWatcherHears(t *testing.T) {
	f := newFakeEngine(t)
	status, _ := startTestWatcher(t, f)
	until(t, status, "subscription", func(w Watch) bool { return w.Engine == "" })
	f.events <- event("kill", "cn0")
	f.events <- event("start", "unknown")
	f.events <- strings.ReplaceAll(event("start", "ms0"), `"r"`, `"other"`)
	f.events <- `{"Type":"network","Action":"disconnect","Actor":{"Attributes":{"name":"rdmalab-r-cn1"}}}`
	f.events <- event("die", "cn0")
	until(t, status, "events", func(w Watch) bool {
		return len(w.Hosts[1].Seen) == 2 && w.Hosts[1].Seen[0].What == "kill" && w.Hosts[1].Seen[1].What == "die" &&
			len(w.Hosts[2].Seen) == 1 && w.Hosts[2].Seen[0].What == "disconnect"
	})
	if s := status(); len(s.Hosts) != 3 || len(s.Hosts[0].Seen) != 0 {
		t.Errorf("%+v", s)
	}
	f.failing("/events", http.StatusServiceUnavailable)
	f.events <- "end"
	until(t, status, "the end is noticed", func(w Watch) bool { return w.Engine != "" })
	f.failing("/events", 0)
	until(t, status, "subscription again", func(w Watch) bool { return w.Engine == "" })
	f.events <- event("start", "cn0")
	until(t, status, "event after that", func(w Watch) bool { return len(w.Hosts[1].Seen) == 3 })
	for range 2 * maxSeen {
		f.events <- event("restart", "cn0")
	}
	until(t, status, "a bound", func(w Watch) bool { return len(w.Hosts[1].Seen) == maxSeen && w.Hosts[1].Seen[0].What == "restart" })
}

// A container in the machine's own network namespace is never plugged, because the interface would
// be put there.
func TestWatcherNeverPlugsTheMachine(t *testing.T) {
	f := newFakeEngine(t)
	f.add("c", "r", "cn0", PartHost, "running", os.Getpid())
	status, _ := startTestWatcher(t, f)
	until(t, status, "refusal", func(w Watch) bool { return strings.Contains(w.Hosts[1].Error, "network_mode none") })
	if s := status(); s.Hosts[1].Plugged || s.Hosts[1].Plugs != 0 {
		t.Errorf("%+v", s.Hosts[1])
	}
}

// A container that has ended before it was inspected is not plugged, and this is no error.
func TestWatcherMeetsTheDead(t *testing.T) {
	f := newFakeEngine(t)
	f.add("c", "r", "cn0", PartHost, "running", 1<<22+7)
	status, _ := startTestWatcher(t, f)
	until(t, status, "subscription", func(w Watch) bool { return w.Engine == "" })
	f.events <- event("start", "cn0")
	until(t, status, "event", func(w Watch) bool { return len(w.Hosts[1].Seen) == 1 })
	if s := status(); s.Hosts[1].Plugged || s.Hosts[1].Error != "" {
		t.Errorf("%+v", s.Hosts[1])
	}
}
