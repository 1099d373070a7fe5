package container

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func hostsOn(t *testing.T, f *fakeEngine) *Hosts {
	t.Helper()
	return NewHosts("r", Settings{Socket: f.socket, Plug: PlugOutside})
}

// If no engine is found, the error says where it was looked for and what to do.
func TestNoEngine(t *testing.T) {
	_, err := Connect(t.Context(), filepath.Join(t.TempDir(), "none.sock"))
	if !errors.Is(err, ErrNoEngine) || !strings.Contains(err.Error(), "rdmalab doctor") || !strings.Contains(err.Error(), "none.sock") {
		t.Errorf("%v", err)
	}
	for env, want := range map[string]string{"": DefaultSocket, "unix:///a/b.sock": "/a/b.sock"} {
		t.Setenv("DOCKER_HOST", env)
		if got, err := SocketFromEnv(); got != want || err != nil {
			t.Errorf("DOCKER_HOST %q: %q, %v", env, got, err)
		}
	}
	for _, env := range []string{"tcp://h:1", "unix://relative", "x"} {
		t.Setenv("DOCKER_HOST", env)
		if _, err := SocketFromEnv(); err == nil || !strings.Contains(err.Error(), "this machine") {
			t.Errorf("DOCKER_HOST %q passes: %v", env, err)
		}
	}
}

// An engine that does not answer because it is stopped counts as no engine: the other parts of a
// rack are removed without it.
func TestSilentEngine(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "silent.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // connections are never accepted
	if _, err := Connect(t.Context(), path); !errors.Is(err, ErrNoEngine) || !strings.Contains(err.Error(), "says nothing") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := Connect(ctx, path); errors.Is(err, ErrNoEngine) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a caller without time learns %v", err)
	}
}

// Remove waits for containers that the engine is removing already: none is left when it returns.
func TestRemovalInProgress(t *testing.T) {
	f := newFakeEngine(t)
	f.add("going", "r", "cn0", PartHost, "removing", 0)
	if found, err := hostsOn(t, f).Remove(t.Context()); !found || err != nil {
		t.Errorf("%v, %v", found, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.containers) != 0 {
		t.Error("the container is still there")
	}
}

// An engine gives up a removal if the client that requested it has gone. Remove requests the
// removal again.
func TestRemovalGivenUp(t *testing.T) {
	f := newFakeEngine(t)
	f.add("stays", "r", "cn0", PartHost, "given up", 0)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if found, err := hostsOn(t, f).Remove(ctx); !found || err != nil {
		t.Errorf("%v, %v", found, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.containers) != 0 {
		t.Error("the container is still there")
	}
}

// A container that the engine makes after its controller has died is removed, too.
func TestContainersThatComeLate(t *testing.T) {
	f := newFakeEngine(t)
	f.add("early", "r", "cn0", PartHost, "running", 0)
	time.AfterFunc(50*time.Millisecond, func() {
		f.add("late", "r", "cn1", PartHost, "created", 0)
	})
	if err := hostsOn(t, f).RemoveLate(t.Context(), time.Second); err != nil {
		t.Error(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.containers) != 0 {
		t.Errorf("left: %v", f.containers)
	}
}

// A container of another program that is connected to a host's network is disconnected, and not
// removed. The rack's networks are removed.
func TestStrangerOnALink(t *testing.T) {
	f := newFakeEngine(t)
	f.add("stranger", "other", "x", PartHost, "running", 1<<22+7)
	f.networks["net0"], f.networks["net1"] = "stranger", ""
	h := hostsOn(t, f)
	h.paths.Dir = t.TempDir()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "driver.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // the socket only has to exist
	h.driver = l.Addr().String()
	if found, err := h.Remove(t.Context()); !found || err != nil {
		t.Errorf("%v, %v", found, err)
	}
	if len(f.networks) != 0 || len(f.containers) != 1 {
		t.Errorf("left: networks %v, containers %v", f.networks, f.containers)
	}
}

// A host's containers are found by labels, killed, stopped, continued and removed. Without
// containers these calls return no error.
func TestHosts(t *testing.T) {
	f := newFakeEngine(t)
	h := hostsOn(t, f)
	ctx := t.Context()
	if err := h.Kill(ctx, "ms0"); err != nil {
		t.Errorf("kill of no container: %v", err)
	}
	f.add("named-by-compose", "r", "ms0", PartHost, "running", 1<<22+7)
	f.add("foreign", "other", "ms0", PartHost, "running", 1<<22+8)
	c, err := h.Container(ctx, "ms0", PartHost)
	if err != nil || c.Name != "named-by-compose" || !c.Runs() {
		t.Fatalf("%+v, %v", c, err)
	}
	if _, err := h.Container(ctx, "ms0", PartHolder); !errors.Is(err, ErrNotFound) {
		t.Errorf("a holder: %v", err)
	}
	if err := h.Pause(ctx, "ms0", true); err != nil {
		t.Error(err)
	}
	if c, _ := h.Container(ctx, "ms0", PartHost); c.State != "paused" || !c.Runs() {
		t.Errorf("paused: %+v", c)
	}
	for range 2 {
		if err := h.Kill(ctx, "ms0"); err != nil {
			t.Error(err)
		}
	}
	if _, err := h.Netns(ctx, "ms0"); !errors.Is(err, ErrNotFound) {
		t.Errorf("network of a dead container: %v", err)
	}
	if pids, err := h.PIDs(ctx, "ms0"); len(pids) != 0 || err != nil {
		t.Errorf("processes of a dead container: %v, %v", pids, err)
	}
	if found, err := h.Remove(ctx); !found || err != nil {
		t.Errorf("remove: %v, %v", found, err)
	}
	if found, err := h.Remove(ctx); found || err != nil {
		t.Errorf("remove again: %v, %v", found, err)
	}
	if len(f.containers) != 1 || f.containers["foreign"] == nil {
		t.Errorf("left: %v; only the other rack's was to stay", f.containers)
	}
	if names, err := Leftovers(ctx, f.socket); fmt.Sprint(names) != "[other]" || err != nil {
		t.Errorf("leftovers %v, %v", names, err)
	}
}

// PIDs does not list a process that only has the number of a container's former process: a process
// is identified by its number and its start time.
func TestPIDsOfStaleNumbers(t *testing.T) {
	f := newFakeEngine(t)
	h := hostsOn(t, f)
	f.add("c", "r", "cn0", PartHost, "running", 1<<22+7)
	if pids, err := h.PIDs(t.Context(), "cn0"); len(pids) != 0 || err != nil {
		t.Errorf("%v, %v", pids, err)
	}
	if err := h.Adopt(t.Context(), "cn0", os.Getpid()); err == nil {
		t.Error("a dead container has adopted a process")
	}
}

// Errors have the engine's text, and an answer that is not JSON is an error.
func TestEngineErrors(t *testing.T) {
	f := newFakeEngine(t)
	e, err := Connect(t.Context(), f.socket)
	if err != nil {
		t.Fatal(err)
	}
	f.fail["/containers/json"] = http.StatusInternalServerError
	_, err = e.List(t.Context(), "r")
	var said *EngineError
	if !errors.As(err, &said) || said.Status != 500 || !strings.Contains(err.Error(), "the fake fails") {
		t.Errorf("%v", err)
	}
	if err := e.call(t.Context(), http.MethodGet, "/_ping", nil, nil, &struct{}{}); err == nil {
		t.Error("an empty answer was taken for JSON")
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.List(done, "r"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// A removal goes on after a failure, and reports all failures.
func TestRemoveGoesOn(t *testing.T) {
	f := newFakeEngine(t)
	h := hostsOn(t, f)
	f.add("a", "r", "ms0", PartHost, "running", 1<<22+7)
	f.add("b", "r", "cn0", PartHost, "running", 1<<22+8)
	f.fail["/containers/"+f.containers["a"].ID] = http.StatusInternalServerError
	found, err := h.Remove(t.Context())
	if !found || err == nil || len(f.containers) != 1 {
		t.Errorf("%v, %v, %d left", found, err, len(f.containers))
	}
}
