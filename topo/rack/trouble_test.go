package rack

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/nl"
)

func TestForeignThingsStay(t *testing.T) {
	name := rackName(t, "g")
	dir := rackfile.PathsOf(name).Dir
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "precious")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Down(t.Context(), name); err == nil || !strings.Contains(err.Error(), "no rack's") {
		t.Errorf("down over a foreign file: %v", err)
	}
	if _, err := Up(t.Context(), testSpec(name)); err == nil {
		t.Error("up over a foreign file went well")
	}
	if err := os.Remove(file); err != nil {
		t.Fatalf("the foreign file is gone: %v", err)
	}
}

func TestBusy(t *testing.T) {
	name := rackName(t, "h")
	l, err := acquire(t.Context(), rackfile.PathsOf(name))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := Up(ctx, testSpec(name)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("up while another program holds the lock: %v", err)
	}
	// It may be about to write the description.
	if _, err := DownSlice(ctx, name, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("down of a slice while another program holds the lock: %v", err)
	}
	if err := l.release(true); err != nil {
		t.Fatal(err)
	}
	mustUp(t, name)
}

func TestUpAfterProcessesWereKilled(t *testing.T) {
	name := rackName(t, "i")
	r := mustUp(t, name)
	s, err := r.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{s.Switch.PID, s.Hosts[0].InitPID} {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	err = waitFor(patience, "deaths", func() (bool, error) {
		s, err := r.Status(t.Context())
		return s.Switch.State == StateCrashed && s.Hosts[0].State == StateCrashed && s.Hosts[1].State == StateUp, err
	})
	if err != nil {
		t.Fatal(err)
	}
	r = mustUp(t, name)
	if want := []string{"ms0", rackfile.SwitchName}; !slices.Equal(r.Lost, want) {
		t.Errorf("lost %v, want %v", r.Lost, want)
	}
	if s, err := r.Status(t.Context()); err != nil || s.State != StateUp {
		t.Errorf("after another up: %+v, %v", s, err)
	}
}

func TestFullDisk(t *testing.T) {
	name := rackName(t, "j")
	for _, files := range []string{"1", "2"} { // room for the folder itself; for the folder and a lock
		cmd := exec.Command(os.Args[0], "up-on-full-disk", "--rack", name, "--die-after", files)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
		in, err := cmd.StdinPipe()
		must(t, err)
		out, err := cmd.StdoutPipe()
		must(t, err)
		var said bytes.Buffer
		cmd.Stderr = &said
		must(t, cmd.Start())
		if _, err := out.Read(make([]byte, 1)); err != nil {
			t.Errorf("with room for %s files: %v", files, err)
		}
		_ = unix.Rmdir(rackfile.StateRoot) // as another rack that goes down; it fails while there are racks
		must(t, in.Close())
		if err := cmd.Wait(); err == nil || !bytes.Contains(said.Bytes(), []byte("no space left")) {
			t.Errorf("up with room for %s files: %v\n%s", files, err, said.Bytes())
		}
	}
	if left := tracesOf(t, name); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestBusyNamespace(t *testing.T) {
	withBothKeepers(t, func(t *testing.T, r *Rack) {
		// Another program is in a host's namespace, with its working directory on the rack's tmpfs.
		guest := exec.Command("sleep", "600")
		guest.Dir = r.Paths.Dir
		must(t, nl.Do(r.Paths.Netns("cn0"), guest.Start))
		defer func() {
			must(t, guest.Process.Kill())
			_ = guest.Wait() // it was killed
		}()
		if _, err := r.remover().down(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left := tracesOf(t, r.Spec.Name); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
		if p, ok := readProc(guest.Process.Pid); !ok || p.state == 'Z' {
			t.Error("the guest was ended with the rack")
		}
		must(t, builder{rack: r}.up(t.Context()))
		if s := stateOf(t, r, "cn0"); s != StateUp {
			t.Errorf("cn0 is %s, want up", s)
		}
	})
}

func TestBadProcessor(t *testing.T) {
	name := rackName(t, "k")
	s := testSpec(name)
	s.Hosts[0].CPU = 1000
	if _, err := Up(t.Context(), s); err == nil || !strings.Contains(err.Error(), "processor 1000") {
		t.Errorf("up on a processor that is not there: %v", err)
	}
	if left := tracesOf(t, name); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	s.Hosts[0].CPU = 0
	if _, err := Up(t.Context(), s); err != nil {
		t.Error(err)
	}
}

func TestRacksSideBySideInAHurry(t *testing.T) {
	names := []string{rackName(t, "m"), rackName(t, "n"), rackName(t, "o")}
	for range 3 {
		err := each(names, func(name string) error {
			if _, err := Up(t.Context(), testSpec(name)); err != nil {
				return err
			}
			_, err := Down(t.Context(), name)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names {
		if left := tracesOf(t, name); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	}
}
