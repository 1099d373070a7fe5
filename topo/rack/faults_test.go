package rack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/nl"
)

// patience bounds a wait for what must happen, but at no certain time.
const patience = 30 * time.Second

// stateOf returns the present state of a node.
func stateOf(t *testing.T, r *Rack, node string) State {
	t.Helper()
	return statusOf(t, r, node).State
}

func statusOf(t *testing.T, r *Rack, node string) NodeStatus {
	t.Helper()
	s, err := r.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if node == rackfile.SwitchName {
		return s.Switch
	}
	for _, h := range s.Hosts {
		if h.Name == node {
			return h
		}
	}
	t.Fatalf("no host %s in %+v", node, s)
	return NodeStatus{}
}

// eventually waits for a state.
func eventually(t *testing.T, r *Rack, node string, want State) {
	t.Helper()
	err := waitFor(patience, node+" "+string(want), func() (bool, error) { return stateOf(t, r, node) == want, nil })
	if err != nil {
		t.Errorf("%v; it is %s", err, stateOf(t, r, node))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// withBothKeepers runs a test twice: with cgroups, if the machine has them, and with signals.
func withBothKeepers(t *testing.T, f func(t *testing.T, r *Rack)) {
	for keeper, root := range map[string]string{"cgroup": cgroup2Root(), "signals": ""} {
		t.Run(keeper, func(t *testing.T) {
			if keeper == "cgroup" && root == "" {
				t.Skip("this machine has no cgroup2")
			}
			if root == "" {
				t.Setenv(signalsEnv, "1")
			}
			name := rackName(t, keeper[:1])
			r := handle(name)
			r.Spec = testSpec(name)
			r.useCgroup(root, name)
			t.Cleanup(func() {
				if _, err := r.remover().down(context.Background()); err != nil {
					t.Error(err)
				}
			})
			must(t, builder{rack: r}.up(t.Context()))
			f(t, r)
			if _, err := r.remover().down(t.Context()); err != nil {
				t.Error(err)
			}
			if left := tracesOf(t, name); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}

func TestCrashAndRestart(t *testing.T) {
	withBothKeepers(t, func(t *testing.T, r *Rack) {
		ctx := t.Context()
		before := statusOf(t, r, "cn0")
		for _, node := range []string{"cn0", rackfile.SwitchName} {
			must(t, r.Crash(ctx, node))
			s := statusOf(t, r, node)
			if s.State != StateCrashed || !s.Meant || s.PID != 0 {
				t.Errorf("crashed %s is %+v", node, s)
			}
			if node == "cn0" && s.Link != LinkNoCarrier {
				t.Errorf("link of the crashed host is %s, want %s", s.Link, LinkNoCarrier)
			}
			if stateOf(t, r, "cn1") != StateUp {
				t.Errorf("cn1 did not survive the crash of %s", node)
			}
			if err := r.Crash(ctx, node); !errors.Is(err, ErrState) {
				t.Errorf("second crash of %s: %v, want ErrState", node, err)
			}
			if err := r.Hang(ctx, node); !errors.Is(err, ErrState) {
				t.Errorf("hang of the crashed %s: %v, want ErrState", node, err)
			}
		}
		if err := (builder{rack: r}).existing(t.Context()); !errors.Is(err, ErrAlreadyUp) {
			t.Errorf("up over nodes that were crashed on purpose: %v, want ErrAlreadyUp", err)
		}
		must(t, r.Restart(ctx, rackfile.SwitchName))
		must(t, r.Restart(ctx, "cn0"))
		after := statusOf(t, r, "cn0")
		if after.State != StateUp || after.MAC != before.MAC || after.PID == before.PID || after.Link != LinkUp {
			t.Errorf("restarted host %+v, before %+v", after, before)
		}
		h, _, _ := r.Spec.Host("cn0")
		addrs, err := nl.Addrs(r.Paths.Netns("cn0"), rackfile.HostIfname)
		if err != nil || len(addrs) != 2 || addrs[0] != r.Spec.Prefix4(h) || addrs[1] != r.Spec.Prefix6(h) {
			t.Errorf("addresses after the restart: %v, %v", addrs, err)
		}
		must(t, r.Restart(ctx, "cn0")) // the host is up, so this is a reboot
		if again := statusOf(t, r, "cn0"); again.State != StateUp || again.PID == after.PID {
			t.Errorf("rebooted host %+v, before %+v", again, after)
		}
	})
}

func TestHangAndResume(t *testing.T) {
	withBothKeepers(t, func(t *testing.T, r *Rack) {
		ctx := t.Context()
		for _, node := range []string{"cn0", rackfile.SwitchName} {
			must(t, r.Hang(ctx, node))
			if s := stateOf(t, r, node); s != StateHung {
				t.Errorf("%s is %s, want hung", node, s)
			}
			if err := r.Hang(ctx, node); !errors.Is(err, ErrState) {
				t.Errorf("second hang: %v, want ErrState", err)
			}
			if _, err := r.Exec(node, []string{"true"}); !errors.Is(err, ErrState) {
				t.Errorf("exec on what hangs: %v, want ErrState", err)
			}
			must(t, r.Resume(ctx, node))
			eventually(t, r, node, StateUp)
			if err := r.Resume(ctx, node); !errors.Is(err, ErrState) {
				t.Errorf("second resume: %v, want ErrState", err)
			}
		}
		must(t, r.Hang(ctx, "cn1"))
		must(t, r.Restart(ctx, "cn1"))
		eventually(t, r, "cn1", StateUp)
		must(t, r.Hang(ctx, "ms0")) // down works on a host that hangs
	})
}

func TestLink(t *testing.T) {
	r := mustUp(t, rackName(t, "l"))
	ctx := t.Context()
	must(t, r.Link(ctx, "cn0", false))
	if s := statusOf(t, r, "cn0"); s.State != StateCut || s.Link != LinkDown {
		t.Errorf("cut host is %+v", s)
	}
	if l, err := nl.LinkByName(r.Paths.Netns("cn0"), rackfile.HostIfname); err != nil || l.Carrier || !l.Up {
		t.Errorf("the host's end is %+v, %v; want up without carrier", l, err)
	}
	must(t, r.Restart(ctx, "cn0"))
	if s := statusOf(t, r, "cn0"); s.State != StateCut {
		t.Errorf("a restart restored the link: %+v", s)
	}
	must(t, r.Link(ctx, "cn0", true))
	eventually(t, r, "cn0", StateUp)
	if err := r.Link(ctx, rackfile.SwitchName, false); err == nil || !strings.Contains(err.Error(), "cn1") {
		t.Errorf("link of the switch: %v; want an error that lists the hosts", err)
	}
}

func TestTimers(t *testing.T) {
	withBothKeepers(t, func(t *testing.T, r *Rack) {
		ctx := t.Context()
		const soon, late = 100 * time.Millisecond, time.Hour
		must(t, r.Crash(ctx, "cn0"))
		must(t, r.After(ctx, soon, ActionRestart, "cn0"))
		must(t, r.Hang(ctx, "cn1"))
		must(t, r.After(ctx, soon, ActionResume, "cn1"))
		must(t, r.Link(ctx, "ms0", false))
		must(t, r.After(ctx, soon, ActionLinkUp, "ms0"))
		for _, node := range []string{"cn0", "cn1", "ms0"} {
			eventually(t, r, node, StateUp)
		}
		// When the end of a fault is planned twice, the later plan replaces the earlier one; Resume
		// cancels it.
		must(t, r.Hang(ctx, "cn1"))
		must(t, r.After(ctx, late, ActionResume, "cn1"))
		must(t, r.Resume(ctx, "cn1"))
		if pids, err := r.keep.pids(timerNode("cn1")); err != nil || len(processes(pids)) != 0 {
			t.Errorf("the timer outlived the end of its fault: %v, %v", pids, err)
		}
		must(t, r.Link(ctx, "cn0", false))
		must(t, r.After(ctx, late, ActionLinkUp, "cn0")) // down removes the timer
		if pids, err := r.keep.pids(timerNode(ActionLinkUp.timerName("cn0"))); err != nil || len(pids) != 1 {
			t.Errorf("processes of the timer: %v, %v; want one", pids, err)
		}
		if err := r.After(ctx, -1, ActionResume, "cn1"); err == nil {
			t.Error("a negative time was accepted")
		}
	})
}

func TestExec(t *testing.T) {
	withBothKeepers(t, func(t *testing.T, r *Rack) {
		out := filepath.Join(t.TempDir(), "out")
		script := "hostname; cat /etc/hosts; ls /sys/class/net; echo $$; pwd; exit 7"
		code, err := r.Exec("cn0", []string{"sh", "-c", "(" + script + ") >" + out + "; exit 7"})
		if err != nil || code != 7 {
			t.Fatalf("exec: %d, %v; want 7", code, err)
		}
		b, err := os.ReadFile(out)
		must(t, err)
		for _, want := range []string{"cn0\n", "10.77.0.2 ms0\n", rackfile.HostIfname + "\n", "\nlo\n"} {
			if !strings.Contains(string(b), want) {
				t.Errorf("no %q in the output:\n%s", want, b)
			}
		}
		if code, err := r.Exec("cn0", []string{"no-such-program"}); code != 127 || err == nil {
			t.Errorf("missing program: %d, %v; want 127", code, err)
		}
		if code, err := r.Exec("cn0", []string{"/etc"}); code != 126 || err == nil {
			t.Errorf("a folder as program: %d, %v; want 126", code, err)
		}
		if code, err := r.Exec("cn0", []string{"sh", "-c", "kill -KILL $$"}); code != 137 || err != nil {
			t.Errorf("killed program: %d, %v; want 137", code, err)
		}
		if _, err := r.Exec("cn9", []string{"true"}); err == nil || !strings.Contains(err.Error(), "cn1") {
			t.Errorf("unknown host: %v; want an error that lists the hosts", err)
		}
	})
}

func TestCrashEndsPrograms(t *testing.T) {
	withBothKeepers(t, func(t *testing.T, r *Rack) {
		run := func() <-chan int {
			done := make(chan int, 1)
			marker := filepath.Join(t.TempDir(), "runs")
			go func() {
				// An orphan is found, too, by its namespace or cgroup only.
				code, err := r.Exec("cn0", []string{"sh", "-c", "(sleep 600 &); : >" + marker + "; sleep 600"})
				if err != nil {
					t.Error(err)
				}
				done <- code
			}()
			must(t, waitFor(patience, "start of the program", func() (bool, error) {
				pids, err := r.keep.pids("cn0")
				return exists(marker) && len(processes(pids)) == 5, err // process 1, the daemon, the shell and its two children
			}))
			return done
		}
		done := run()
		if n, err := r.Apps("cn0").Crash(t.Context()); err != nil || n != 3 {
			t.Errorf("ended %d programs, %v; want 3", n, err)
		}
		if code := <-done; code != 137 {
			t.Errorf("the program ended with %d, want 137", code)
		}
		if s := stateOf(t, r, "cn0"); s != StateUp {
			t.Errorf("the host is %s after the end of its programs, want up", s)
		}
		done = run()
		must(t, r.Crash(t.Context(), "cn0"))
		if code := <-done; code != 137 {
			t.Errorf("the program ended with %d, want 137", code)
		}
		pids, err := r.keep.pids("cn0")
		if err != nil || len(processes(pids)) != 0 {
			t.Errorf("processes of the crashed host: %v, %v", pids, err)
		}
	})
}

func TestInitReaps(t *testing.T) {
	r := mustUp(t, rackName(t, "z"))
	if code, err := r.Exec("cn0", []string{"sh", "-c", "for i in 1 2 3 4 5; do (sleep 0 &); done"}); code != 0 || err != nil {
		t.Fatal(code, err)
	}
	err := waitFor(patience, "reaping", func() (bool, error) {
		pids, err := r.keep.pids("cn0")
		return len(pids) == 2, err // process 1 and the daemon
	})
	if err != nil {
		t.Error(err)
	}
}

func TestExecPassesFiles(t *testing.T) {
	needRoot(t)
	r := mustUp(t, rackName(t, "x"))
	// The program runs with the files of its caller; here, a second program of the test is the
	// caller.
	cmd := exec.Command(os.Args[0], "exec", "--rack", r.Spec.Name, "--node", "cn0")
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	fmt.Fprintln(in, "through")
	must(t, in.Close())
	b, err := io.ReadAll(out)
	must(t, err)
	must(t, cmd.Wait())
	if string(b) != "through\n" {
		t.Errorf("got %q", b)
	}
}

// A user with root rights on a host can delete its interface; restart makes it again.
func TestRestartAfterTheLinkWasRemoved(t *testing.T) {
	r := mustUp(t, rackName(t, "w"))
	for range 2 {
		must(t, nl.DeleteLink(r.Paths.Netns("cn0"), rackfile.HostIfname))
		must(t, r.Restart(t.Context(), "cn0"))
		if s := statusOf(t, r, "cn0"); s.State != StateUp || s.Link != LinkUp {
			t.Fatalf("after restart: %+v", s)
		}
		if got, err := nl.Addrs(r.Paths.Netns("cn0"), rackfile.HostIfname); err != nil || len(got) != 2 {
			t.Errorf("addresses %v, %v", got, err)
		}
	}
	must(t, nl.DeleteLink(r.Paths.Netns("cn0"), rackfile.HostIfname))
	must(t, r.Crash(t.Context(), "cn0"))
	must(t, r.Restart(t.Context(), "cn0"))
}
