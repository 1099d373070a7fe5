package layering

import (
	"os/exec"
	"strings"
	"testing"
)

// made returns what make says in an environment that has only env, and its error.
func made(t *testing.T, env []string, args ...string) (string, error) {
	t.Helper()
	path, err := exec.LookPath("make")
	if err != nil {
		t.Skip("no make")
	}
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.Env = "../..", append([]string{"PATH=/usr/bin:/bin"}, env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestMakeUpTakesTheRackOfTheEnvironment(t *testing.T) {
	for _, c := range []struct {
		env, args []string
		want      string
	}{
		{nil, nil, "--rack default up"},
		{[]string{"RDMALAB_RACK=mine"}, nil, "--rack mine up"},
		{[]string{"RDMALAB_RACK=mine"}, []string{"RACK=other"}, "--rack other up"},
	} {
		out, err := made(t, c.env, append([]string{"-n", "up"}, c.args...)...)
		if err != nil || !strings.Contains(out, c.want) {
			t.Errorf("%v %v: %v, want a line with %q in\n%s", c.env, c.args, err, c.want, out)
		}
	}
}

func TestMakeBuildWithoutGoSaysWhatToDo(t *testing.T) {
	out, err := made(t, nil, "build", "GO=/nowhere/go")
	if err == nil || strings.Count(out, "make build as your user") != 1 {
		t.Errorf("%v, want one line that says what to write in\n%s", err, out)
	}
}
