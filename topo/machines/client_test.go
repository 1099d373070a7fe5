package machines

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/rack"
)

// played returns a client whose connections are open, in a folder with the rack's description. The script
// plays ssh; $dir is the folder of the test. The file $dir/ran gets the arguments of each call.
func played(t *testing.T, script string) (c *Client, dir string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "mc") //nolint:usetesting // short, because of the names of sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	text := "#!/bin/sh\ndir=" + dir + "\nfor last; do :; done\necho \"$*\" >>$dir/ran\n" + script + "\n"
	if err := errors.Join(os.Mkdir(dir+"/bin", 0o755), os.WriteFile(dir+"/bin/ssh", []byte(text), 0o755)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+"/bin:"+os.Getenv("PATH"))
	c = clientOf(parsed(t), rackfile.Paths{Dir: dir + "/root/x.client"})
	if err := c.make(make([]byte, secretSize)); err != nil {
		t.Fatal(err)
	}
	for _, m := range c.Rack.Machines {
		s, err := net.Listen("unix", c.Paths.SSH(m.Name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
	}
	return c, dir
}

// removed lists the machines that were told to take their slices away.
func removed(t *testing.T, dir string) (list []string) {
	t.Helper()
	ran, err := os.ReadFile(dir + "/ran")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(ran)) {
		for name, host := range map[string]string{"m1": "-- 10.0.0.1 ", "m2": "-- 10.0.0.2 "} {
			if strings.Contains(line, host) && strings.Contains(line, "'slice' 'down' '--generation' '7'") {
				list = append(list, name)
			}
		}
	}
	return list
}

// When the connection to m2 breaks while it gets its slice, an up of a new rack takes away what may be there;
// that of a rack that was up before takes away only what it certainly has made.
func TestUndo(t *testing.T) {
	for name, c := range map[string]struct {
		old, made, down bool
		want            int
		stays           bool
	}{
		"a rack that was up":               {old: true, down: true, stays: true},
		"a slice that was missing":         {old: true, made: true, down: true, want: 1, stays: true},
		"a new rack":                       {made: true, down: true, want: 2},
		"a new rack, and m2 does not come": {made: true, want: 2, stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			answer, status := `{"made":false}`, "255"
			if c.made {
				answer = `{"made":true}`
			}
			if c.down {
				status = "0"
			}
			client, dir := played(t, `case "$*" in
*10.0.0.2*apply*) exit 255;;
*apply*) echo '`+answer+`';;
*10.0.0.2*down*) exit `+status+`;;
esac`)
			err := client.applyAll(t.Context(), "v1", make([]byte, secretSize), c.old)
			var gone *Unreachable
			if !errors.As(err, &gone) || gone.Machine != "m2" {
				t.Errorf("%v", err)
			}
			if got := removed(t, dir); len(got) != c.want || c.want == 1 && got[0] != "m1" {
				t.Errorf("%v were told to take their slices away, want %d machines", got, c.want)
			}
			if _, err := os.Stat(client.Paths.Spec()); (err == nil) != c.stays {
				t.Errorf("the client's folder: %v", err)
			}
			if left := !c.down; left != strings.Contains(err.Error(), "down --lost") {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestAlreadyUp(t *testing.T) {
	c, dir := played(t, `echo '{"made":false}'`)
	if err := c.applyAll(t.Context(), "v1", nil, true); !errors.Is(err, rack.ErrAlreadyUp) || removed(t, dir) != nil {
		t.Errorf("%v", err)
	}
}

// A program may end with the status of a broken connection.
func TestStatusOfPrograms(t *testing.T) {
	c, dir := played(t, `case "$last" in *broken*) rm "$dir"/root/x.client/ssh/m1; exit 255;; *) exit 255;; esac`)
	if code, err := c.Run(t.Context(), "m1", nil, false, "exec", "cn0"); code != 255 || err != nil {
		t.Errorf("%d %v", code, err)
	}
	var gone *Unreachable
	if code, err := c.Run(t.Context(), "m1", nil, false, "exec", "broken"); !errors.As(err, &gone) {
		t.Errorf("%d %v in %s", code, err, dir)
	}
}

// A command reads what it is given, and not what this program could read.
func TestInput(t *testing.T) {
	c, dir := played(t, `cat >$dir/read`)
	own, err := os.Open(dir + "/bin/ssh")
	if err != nil {
		t.Fatal(err)
	}
	was := os.Stdin
	os.Stdin = own
	t.Cleanup(func() { os.Stdin = was; _ = own.Close() })
	if _, err := c.Run(t.Context(), "m1", nil, false, "crash", "cn0"); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(dir + "/read"); err != nil || len(b) > 0 {
		t.Errorf("read %q %v", b, err)
	}
	if _, err := c.Run(t.Context(), "m1", strings.NewReader("it"), false, "exec", "cn0"); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(dir + "/read"); err != nil || string(b) != "it" {
		t.Errorf("read %q %v", b, err)
	}
}

// A command that was interrupted ends, though the process that holds the connection keeps its pipes.
func TestInterrupt(t *testing.T) {
	c, dir := played(t, `sleep 60 & echo $! >$dir/pid; wait`)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	done := make(chan error, 1)
	go func() { _, err := c.conns[0].run(ctx, nil, "slice", "status"); done <- err }()
	select {
	case err := <-done:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("it goes on")
	}
	if text, err := os.ReadFile(dir + "/pid"); err == nil { // without it, the program had not begun
		if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
	}
}

// One command at a time changes the client's folder; the one that removes it removes the lock, too.
func TestLocked(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	c := clientOf(parsed(t), rackfile.Paths{Dir: root + "/x.client"})
	err := locked(t.Context(), c.Paths, func() error {
		if err := c.make(nil); err != nil {
			return err
		}
		for path, want := range map[string]os.FileMode{root: 0o755, c.Paths.Dir: 0o700} {
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
				t.Errorf("%s: %v %v", path, info, err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		return locked(ctx, c.Paths, func() error { t.Error("both have the lock"); return nil })
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if err := locked(t.Context(), c.Paths, c.forget); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(root); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something is left: %v", err)
	}
}

// A down that has waited for another command leaves a rack alone that it has not seen.
func TestDownOfAnother(t *testing.T) {
	c, dir := played(t, "")
	other := *c.Rack
	c.Rack = &other
	c.Rack.Generation = 6
	if err := c.Down(t.Context(), false); err == nil || !strings.Contains(err.Error(), "brought up again") {
		t.Error(err)
	}
	if _, err := os.Stat(dir + "/ran"); err == nil {
		t.Error("a machine was told to take its slice away")
	}
	c.Rack.Generation = 7
	if err := c.Down(t.Context(), false); err != nil || len(removed(t, dir)) != 2 {
		t.Errorf("%v", err)
	}
	if err := c.Down(t.Context(), false); err != nil {
		t.Errorf("again: %v", err)
	}
}
