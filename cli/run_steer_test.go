package cli

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
)

// outliveFile is the environment variable with the file that the child of TestOutlivesItsReader
// writes at its end.
const outliveFile = "RDMALAB_TEST_OUTLIVE"

// A run with --steer restores the switch's program and rules, also if the reader of its output has
// ended and the terminal has hung up.
func TestOutlivesItsReader(t *testing.T) {
	if name := os.Getenv(outliveFile); name != "" {
		steersAndPutsBack(t, name)
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	reader, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = reader.Close() // as head does when it ends
	name := filepath.Join(t.TempDir(), "put-back")
	child := exec.Command(self, "-test.run=^TestOutlivesItsReader$")
	child.Env, child.Stdout = append(os.Environ(), outliveFile+"="+name), out
	err = child.Run() // the next write to the closed pipe may end the child
	_ = out.Close()
	if _, missing := os.Stat(name); missing != nil {
		t.Errorf("it was killed before it had put back what was there: %v", err)
	}
}

func steersAndPutsBack(t *testing.T, name string) {
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	free := outlive(cmd)
	defer free()
	if !signal.Ignored(syscall.SIGHUP) {
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		<-cmd.Context().Done()
	}
	if _, err := os.Stdout.WriteString("a line\n"); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("write without reader: %v", err)
	}
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// An error of restoring the switch is reported, also if the run ends with an exit status and no
// message.
func TestUndoIsHeardOf(t *testing.T) {
	undone := errors.New("the switch still has it")
	for _, ended := range []error{nil, errors.New("no store"), exitCode(1)} {
		var out bytes.Buffer
		cmd := &cobra.Command{}
		cmd.SetErr(&out)
		err := withUndo(cmd, ended, undone)
		var code exitCode
		if errors.As(err, &code) != strings.Contains(out.String(), undone.Error()) || ended != nil && !errors.Is(err, ended) || err == nil {
			t.Errorf("%v: %v, %q", ended, err, &out)
		}
		if got := withUndo(cmd, ended, nil); !errors.Is(got, ended) {
			t.Errorf("%v became %v", ended, got)
		}
	}
}
