package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/rackfile"
)

// A daemon whose log is JSON writes its panic and its error there as a record, and says by its exit status which
// of them it was. With a log of text Go prints the panic.
func TestDaemonsEndInTheirLog(t *testing.T) {
	paths := rackfile.Paths{Dir: t.TempDir()}
	if err := os.WriteFile(paths.Spec(), []byte(`{"name":"x","logJson":true}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, run := range map[exitCode]func() error{
		exitPanicked: func() error { panic("planted") },
		1:            func() error { return errors.New("planted") },
	} {
		var out bytes.Buffer
		cmd := &cobra.Command{}
		cmd.SetErr(&out)
		var code exitCode
		if err := logOf(cmd, paths.Dir).run(run); !errors.As(err, &code) || code != want {
			t.Errorf("%v, want %d", err, want)
		}
		var x struct{ Level, Msg, Panic, Stack, Error string }
		if err := json.Unmarshal(out.Bytes(), &x); err != nil || x.Level != "ERROR" || x.Panic+x.Error != "planted" {
			t.Errorf("%v: %s", err, &out)
		}
		if (want == exitPanicked) != strings.Contains(x.Stack, "daemons_test.go") {
			t.Errorf("stack %q", x.Stack)
		}
	}
	defer func() {
		if v := recover(); v != "planted" {
			t.Errorf("recovered %v", v)
		}
	}()
	_ = logOf(&cobra.Command{}, t.TempDir()).run(func() error { panic("planted") })
	t.Error("a panic did not go on")
}
