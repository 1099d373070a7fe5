package container

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rdmalab/rdmalab/rackfile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testRack describes a small rack.
func testRack(t testing.TB, name string) *rackfile.Rack {
	t.Helper()
	r, err := rackfile.Parse([]byte("name: " + name + "\nhosts:\n  - {name: ms0, role: memory}\n  - {name: \"cn[0-1]\", role: compute}\n"))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// fakeEngine serves the engine's API for containers in a map, and records requests.
type fakeEngine struct {
	socket string

	mu         sync.Mutex // guards the fields below
	containers map[string]*inspected
	networks   map[string]string // network ID to the connected container of another program, "" for none
	images     map[string]string // name to program
	loads      string            // the program of each image that a client loads, instead of the program in the request
	asked      []string
	events     chan string
	fail       map[string]int // path to the status with which a request fails
}

// newFakeEngine starts an engine that serves until the end of the test.
func newFakeEngine(t *testing.T) *fakeEngine {
	t.Helper()
	f := &fakeEngine{
		socket: filepath.Join(t.TempDir(), "engine.sock"), containers: map[string]*inspected{}, networks: map[string]string{},
		images: map[string]string{}, events: make(chan string, 16), fail: map[string]int{},
	}
	l, err := net.Listen("unix", f.socket)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(f)
	s.Listener = l
	s.Start()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return f
}

// add adds a container without a request, as if another program had made it.
func (f *fakeEngine) add(name, rack, host, part, state string, pid int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := &inspected{ID: fmt.Sprintf("%064x", len(f.containers)+1), Name: "/" + name}
	c.State.Status, c.State.Pid, c.State.StartedAt = state, pid, "2026-01-01T00:00:00Z"
	c.Config.Labels = map[string]string{LabelRack: rack, LabelHost: host, LabelPart: part, LabelPlug: string(PlugOutside)}
	f.containers[name] = c
}

// failing makes the engine answer requests for a path with a status; 0: as before.
func (f *fakeEngine) failing(path string, status int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail[path] = status
}

// find returns a container by name or ID; mu is held.
func (f *fakeEngine) find(id string) *inspected {
	for name, c := range f.containers {
		if name == id || c.ID == id {
			return c
		}
	}
	return nil
}

func (f *fakeEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/v1.41")
	f.mu.Lock()
	failing := f.fail[path] != 0
	f.mu.Unlock()
	if path == "/events" && !failing {
		w.(http.Flusher).Flush()
		for {
			select {
			case e := <-f.events:
				if e == "end" {
					return
				}
				fmt.Fprintln(w, e)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, r.Method+" "+path)
	if status := f.fail[path]; status != 0 {
		w.WriteHeader(status)
		fmt.Fprint(w, `{"message":"the fake fails"}`)
		return
	}
	f.answer(w, r, path)
}

// answer handles the requests that ServeHTTP does not. The caller holds mu.
func (f *fakeEngine) answer(w http.ResponseWriter, r *http.Request, path string) {
	part := strings.Split(strings.Trim(path, "/"), "/")
	say := func(status int, v any) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	missing := func() { say(http.StatusNotFound, map[string]string{"message": "No such thing"}) }
	switch {
	case path == "/_ping":
		w.Header().Set("Api-Version", "1.41")
	case path == "/containers/json":
		list := []listed{}
		for _, c := range f.containers {
			if strings.Contains(r.URL.Query().Get("filters"), LabelRack+"="+c.Config.Labels[LabelRack]+`"`) || !strings.Contains(r.URL.Query().Get("filters"), "=") {
				list = append(list, listed{c.ID, []string{c.Name}, c.Config.Labels, c.State.Status})
			}
		}
		say(http.StatusOK, list)
	case path == "/containers/create":
		var body struct {
			Labels map[string]string
			Image  string
		}
		_ = json.NewDecoder(r.Body).Decode(&body)
		name := r.URL.Query().Get("name")
		if f.containers[name] != nil {
			say(http.StatusConflict, map[string]string{"message": "Conflict. The container name is already in use"})
			return
		}
		c := &inspected{ID: fmt.Sprintf("%064x", len(f.containers)+1), Name: "/" + name}
		c.State.Status, c.Config.Labels = "created", body.Labels
		f.containers[name] = c
		say(http.StatusCreated, map[string]string{"Id": c.ID})
	case part[0] == "containers":
		c := f.find(part[1])
		if c == nil {
			missing()
			return
		}
		f.act(w, r, c, part, say)
	case path == "/networks":
		list := []network{}
		for id := range f.networks {
			list = append(list, network{ID: id, Name: id})
		}
		say(http.StatusOK, list)
	case path == "/networks/create":
		f.networks[fmt.Sprint("net", len(f.networks))] = ""
		say(http.StatusCreated, nil)
	case part[0] == "networks" && r.Method == http.MethodGet:
		say(http.StatusOK, map[string]any{"Containers": map[string]any{f.networks[part[1]]: map[string]any{}}})
	case part[0] == "networks" && part[len(part)-1] == "disconnect":
		f.networks[part[1]] = ""
	case part[0] == "networks" && f.networks[part[1]] != "":
		say(http.StatusForbidden, map[string]string{"message": "has active endpoints"})
	case part[0] == "networks":
		delete(f.networks, part[1])
	case path == "/images/load":
		_, _ = io.Copy(io.Discard, r.Body) // a client that still sends would otherwise see its connection reset
		f.images[ImageName] = f.loads
		fmt.Fprintln(w, `{"stream":"Loaded image"}`)
	case part[0] == "images" && r.Method == http.MethodGet:
		program, ok := f.images[ImageName]
		if !ok {
			missing()
			return
		}
		say(http.StatusOK, map[string]any{"Id": "sha256:1", "Config": map[string]any{"Labels": map[string]string{LabelImage: program}}})
	default:
		say(http.StatusOK, map[string]any{})
	}
}

// act executes a request for a container. The caller holds mu.
func (f *fakeEngine) act(w http.ResponseWriter, r *http.Request, c *inspected, part []string, say func(int, any)) {
	if r.Method == http.MethodDelete && c.State.Status == "removing" {
		time.AfterFunc(100*time.Millisecond, func() { f.mu.Lock(); defer f.mu.Unlock(); delete(f.containers, strings.TrimPrefix(c.Name, "/")) })
		say(http.StatusConflict, map[string]string{"message": "removal of container is already in progress"})
		return
	}
	if r.Method == http.MethodDelete && c.State.Status == "given up" {
		time.AfterFunc(100*time.Millisecond, func() { f.mu.Lock(); defer f.mu.Unlock(); c.State.Status = "created" })
		say(http.StatusConflict, map[string]string{"message": "removal of container is already in progress"})
		return
	}
	if r.Method == http.MethodDelete {
		delete(f.containers, strings.TrimPrefix(c.Name, "/"))
		return
	}
	switch part[2] {
	case "json":
		say(http.StatusOK, c)
	case "start":
		c.State.Status, c.State.Pid = "running", 1<<22+7 // no process has a number this large
		w.WriteHeader(http.StatusNoContent)
	case "kill":
		if c.State.Status == "exited" {
			say(http.StatusConflict, map[string]string{"message": "is not running"})
			return
		}
		c.State.Status, c.State.Pid = "exited", 0
	case "pause":
		c.State.Status = "paused"
	case "unpause":
		c.State.Status = "running"
	default:
		say(http.StatusOK, map[string]any{})
	}
}
