package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An apply to a rack that is not up says how this rack comes up from this file, with the name that was given.
func TestApplySaysHowItsRackComesUp(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lab.yaml")
	if err := os.WriteFile(file, []byte("name: "+missingRack+"\nhosts: [{name: x, role: compute}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(rackEnv, "")
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "`rdmalab up -f " + file + "` first"},
		{[]string{"--rack", missingRack}, "`rdmalab up --rack " + missingRack + " -f " + file + "` first"},
	} {
		for _, dry := range [][]string{nil, {"--dry-run"}} {
			_, err := run(t, append(append([]string{"apply", "-f", file}, c.args...), dry...)...)
			if want := `rack "` + missingRack + `" is not up: run ` + c.want; err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%v %v: %v, want %s", c.args, dry, err, want)
			}
		}
	}
}
