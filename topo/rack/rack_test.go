package rack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/nl"
)

// tracesOf lists the remains of a rack: mounts, cgroups, folders, processes. It waits for processes
// whose controller died early, which may need a moment to notice that.
func tracesOf(t *testing.T, name string) (found []string) {
	t.Helper()
	_ = waitFor(patience, "end of "+name, func() (bool, error) { // else they are reported by the caller
		found = tracesNow(t, name)
		return len(found) == 0, nil
	})
	return found
}

func tracesNow(t *testing.T, name string) []string {
	t.Helper()
	var found []string
	points, err := mountPoints()
	if err != nil {
		t.Fatal(err)
	}
	dir := rackfile.PathsOf(name).Dir
	for _, p := range points {
		if p == dir || strings.HasPrefix(p, dir+"/") {
			found = append(found, "mount "+p)
		}
	}
	for _, p := range []string{dir, rackfile.PathsOf(name).Lock(), filepath.Join(cgroup2Root(), cgroupParent, name)} {
		if exists(p) {
			found = append(found, p)
		}
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err == nil && e.Name() != fmt.Sprint(os.Getpid()) && bytes.Contains(line, []byte(name)) {
			found = append(found, "process "+e.Name()+" "+strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}

// probe puts a link between a namespace of the test and that of a node. When the node's namespace
// ends, the kernel removes the test's end, too, and gone returns.
func probe(t *testing.T, r *Rack) (gone func()) {
	t.Helper()
	pin := filepath.Join(t.TempDir(), "probe")
	if err := nl.Create(pin); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := nl.Remove(pin); err != nil {
			t.Error(err)
		}
	})
	for i, node := range r.Nodes() {
		err := nl.Connect(nl.End{Netns: pin, Name: fmt.Sprintf("probe%d", i)}, nl.End{Netns: r.Paths.Netns(node), Name: "probe"}, 1500)
		if err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		t.Helper()
		err := waitFor(patience, "end of all namespaces", func() (bool, error) {
			links, err := nl.Links(pin)
			return len(links) == 1, err // the loopback interface remains
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func TestUpDown(t *testing.T) {
	name := rackName(t, "a")
	own, err := nl.Links("")
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	r := mustUp(t, name)
	t.Logf("up in %v", time.Since(begin))
	gone := probe(t, r)
	s, err := r.Status(t.Context())
	if err != nil || s.State != StateUp || len(s.Hosts) != 3 {
		t.Fatalf("status %+v, %v", s, err)
	}
	for _, h := range s.Hosts {
		if h.State != StateUp || h.PID == 0 || h.InitPID == 0 || h.Link != LinkUp {
			t.Errorf("host %+v is not up", h)
		}
		l, err := nl.LinkByName(r.Paths.Netns(h.Name), rackfile.HostIfname)
		if err != nil || l.MAC != h.MAC || l.MTU != r.Spec.LinkMTU || !l.Carrier || l.Alias != "rdmalab/"+name+"/"+h.Name {
			t.Errorf("link of %s: %+v, %v", h.Name, l, err)
		}
	}
	if again, err := Up(t.Context(), testSpec(name)); !errors.Is(err, ErrAlreadyUp) || again == nil {
		t.Errorf("second up: %v, want ErrAlreadyUp", err)
	}
	other := testSpec(name)
	other.Seed++
	if _, err := Up(t.Context(), other); !errors.Is(err, ErrDifferent) {
		t.Errorf("up of another rack of that name: %v, want ErrDifferent", err)
	}
	for i, want := range []bool{true, false} {
		if found, err := Down(t.Context(), name); found != want || err != nil {
			t.Errorf("down number %d: %v, %v", i+1, found, err)
		}
	}
	gone()
	if left := tracesOf(t, name); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	if now, err := nl.Links(""); err != nil || len(now) != len(own) {
		t.Errorf("interfaces of the machine: %v, %v; before %v", now, err, own)
	}
	if _, err := Open(name); !errors.Is(err, ErrNotUp) {
		t.Errorf("open after down: %v, want ErrNotUp", err)
	}
}

// An up that is killed early leaves only the lock of its rack. List has the rack, and Down removes the
// lock.
func TestALockIsARack(t *testing.T) {
	name := rackName(t, "lock")
	lock := rackfile.PathsOf(name).Lock()
	if err := errors.Join(os.MkdirAll(filepath.Dir(lock), 0o755), os.WriteFile(lock, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if names, err := List(); err != nil || !slices.Contains(names, name) {
		t.Errorf("%v, %v: %s is not there", names, err, name)
	}
	if found, err := Down(t.Context(), name); !found || err != nil {
		t.Errorf("down: %v, %v", found, err)
	}
	if names, err := List(); err != nil || slices.Contains(names, name) {
		t.Errorf("%v, %v: %s is still there", names, err, name)
	}
}

func TestTwoRacks(t *testing.T) {
	a, b := rackName(t, "a"), rackName(t, "b")
	ra := mustUp(t, a)
	rb := mustUp(t, b)
	gone := probe(t, ra)
	if _, err := Down(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	gone() // the namespaces of a have ended although b was started while a was up
	s, err := rb.Status(t.Context())
	if err != nil || s.State != StateUp {
		t.Errorf("the other rack: %+v, %v", s, err)
	}
}

func TestControllerDiesDuringUp(t *testing.T) {
	for _, step := range []string{"lock", "killed", "unmounted", "clear", "state", "namespaces", "links", "processes", "answers", "ready"} {
		t.Run(step, func(t *testing.T) {
			name := rackName(t, "d")
			die(t, "up-and-die", name, step)
			if _, err := Down(t.Context(), name); err != nil {
				t.Fatal(err)
			}
			if left := tracesOf(t, name); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
			die(t, "up-and-die", name, step)
			if _, err := Up(t.Context(), testSpec(name)); err != nil && (step != "ready" || !errors.Is(err, ErrAlreadyUp)) {
				t.Errorf("up after a dead controller: %v", err)
			}
		})
	}
}

func TestControllerDiesDuringDown(t *testing.T) {
	for _, step := range []string{"killed", "unmounted"} {
		t.Run(step, func(t *testing.T) {
			name := rackName(t, "e")
			mustUp(t, name)
			die(t, "down-and-die", name, step)
			if found, err := Down(t.Context(), name); err != nil || !found {
				t.Fatalf("down: %v, %v", found, err)
			}
			if left := tracesOf(t, name); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}

func TestControllerDiesAtAnyTime(t *testing.T) {
	name := rackName(t, "r")
	for ms := 0; ms < 200; ms += 20 {
		cmd := exec.Command(os.Args[0], "up-and-die", "--rack", name, "--die-after", "never")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(ms) * time.Millisecond) // the moment of the kill varies
		_ = cmd.Process.Kill()                           // it may have ended
		_ = cmd.Wait()                                   // it was killed
		if _, err := Down(t.Context(), name); err != nil {
			t.Fatalf("after %d ms: %v", ms, err)
		}
		if left := tracesOf(t, name); len(left) > 0 {
			t.Fatalf("after %d ms left behind: %q", ms, left)
		}
	}
}

// die runs a controller that kills itself after a step.
func die(t *testing.T, what, name, step string) {
	t.Helper()
	out, err := exec.Command(os.Args[0], what, "--rack", name, "--die-after", step).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != -1 {
		t.Fatalf("the controller did not die after %s: %v\n%s", step, err, out)
	}
}

func TestUpRollsBack(t *testing.T) {
	name := rackName(t, "f")
	r := handle(name)
	r.Spec = testSpec(name)
	r.reached = func(step string) {
		if step == "links" {
			if err := os.WriteFile(r.Paths.Dir+"/fail-cn1", nil, 0o644); err != nil {
				t.Error(err)
			}
		}
	}
	err := (builder{rack: r}).up(t.Context())
	if err == nil || !strings.Contains(err.Error(), "cn1 died") || !strings.Contains(err.Error(), "told to fail") {
		t.Errorf("up with a dying daemon: %v; want the node and its log", err)
	}
	if left := tracesOf(t, name); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r.reached = func(step string) {
		if step == "namespaces" {
			cancel()
		}
	}
	if err := (builder{rack: r}).up(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted up: %v", err)
	}
	if left := tracesOf(t, name); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}
