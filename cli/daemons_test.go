package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"testing"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/rackfile"
)

// A daemon whose log is JSON writes its error there as a record. A panic goes on: the daemon's parent makes a record of
// what Go prints.
func TestDaemonsEndInTheirLog(t *testing.T) {
	paths := rackfile.Paths{Dir: t.TempDir()}
	if err := os.WriteFile(paths.Spec(), []byte(`{"name":"x","logJson":true}`), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetErr(&out)
	var code exitCode
	if err := logOf(cmd, paths.Dir).supervised("x", func() error { return errors.New("planted") }); !errors.As(err, &code) || code != 1 {
		t.Errorf("%v", err)
	}
	var x struct{ Level, Msg, Error string }
	if err := json.Unmarshal(out.Bytes(), &x); err != nil || x.Level != "ERROR" || x.Error != "planted" {
		t.Errorf("%v: %s", err, &out)
	}
	if err := logOf(cmd, paths.Dir).run(func() error { return exitCode(7) }); !errors.As(err, &code) || code != 7 {
		t.Errorf("%v", err)
	}
	defer func() {
		if v := recover(); v != "planted" {
			t.Errorf("recovered %v", v)
		}
	}()
	_ = logOf(cmd, paths.Dir).run(func() error { panic("planted") })
	t.Error("a panic did not go on")
}
