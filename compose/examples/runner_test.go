package examples

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// step is a step of a workflow or of an action.
type step struct {
	Name, Uses, Run, Shell, If string
	Dir                        string `yaml:"working-directory"`
	Env, With                  map[string]string
}

// action is the file of a composite action.
type action struct {
	Inputs map[string]struct{ Default string }
	Runs   struct{ Steps []step }
}

// runner executes the steps of a job as GitHub's runner does, as far as the files of this repository
// need it. Actions of others are not here: it does what they are used for.
type runner struct {
	t *testing.T
	// root is the repository, home the runner's own folder, work that of the job's repository.
	root, home, work string
	// env are variables of all steps.
	env []string
	// failed is the status of the job.
	failed bool
	log    bytes.Buffer
}

// newRunner makes a runner. As root it has a sudo of its own, which installs below home, and passes on
// only the variables that a file in sudoers.d names, as the real one does. A user needs the real one.
func newRunner(t *testing.T) *runner {
	t.Helper()
	if os.Geteuid() != 0 && exec.Command("sudo", "-n", "true").Run() != nil {
		t.Skip("a rack needs root, or sudo without a password")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{t: t, root: root, home: t.TempDir(), work: t.TempDir()}
	r.env = append(os.Environ(), "GITHUB_STEP_SUMMARY="+r.path("summary"), "GITHUB_ENV="+r.path("env"), "RUNNER_TEMP="+r.path("temp"),
		"GOFLAGS=-trimpath", "GOWORK="+r.path("go.work"))
	for _, name := range []string{"temp", "bin", "sudoers.d", "artifact"} {
		if err := os.Mkdir(r.path(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r.write(r.path("go.work"), fmt.Sprintf("go 1.26.0\n\nuse (\n\t%q\n\t%q\n)\n", root, r.work))
	if os.Geteuid() == 0 {
		r.env = append(r.env, "PATH="+r.path("bin")+":"+os.Getenv("PATH"))
		r.write(r.path("bin/sudo"), `#!/bin/bash
home=`+r.home+`
if [ "$1" = install ]; then
	for to; do :; done
	case $to in /usr/local/bin/*) exec "${@:1:$#-1}" "$home/bin/${to##*/}" ;; /etc/sudoers.d/*) exec "${@:1:$#-1}" "$home/sudoers.d/${to##*/}" ;; esac
	echo "not here: $*" >&2
	exit 1
fi
if [ "$1" = rm ]; then last=${@: -1} && exec rm -f "$home/sudoers.d/${last##*/}"; fi
keep=(PATH="$PATH" HOME=/root)
for name in $(sed -n 's/^Defaults!.*rdmalab env_keep += "\(.*\)"$/\1/p' "$home"/sudoers.d/* 2>/dev/null); do [ -z "${!name+set}" ] || keep+=("$name=${!name}"); done
exec env -i "${keep[@]}" "$@"
`)
	}
	return r
}

func (r *runner) path(name string) string { return filepath.Join(r.home, name) }

func (r *runner) write(path, text string) {
	r.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		r.t.Fatal(err)
	}
}

func (r *runner) read(path string) string {
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		r.t.Error(err)
	}
	return string(b)
}

// files returns the variables that steps have set for later ones.
func (r *runner) later() []string { return strings.Fields(r.read(r.path("env"))) }

var expression = regexp.MustCompile(`\$\{\{ *([a-z]+)\.([a-zA-Z_-]+) *\}\}`)

// expand replaces expressions in a text of an action in folder.
func (r *runner) expand(text, folder string, inputs map[string]string) string {
	return expression.ReplaceAllStringFunc(text, func(e string) string {
		m := expression.FindStringSubmatch(e)
		switch m[1] + "." + m[2] {
		case "github.action_path":
			return folder
		}
		switch m[1] {
		case "inputs":
			if v, ok := inputs[m[2]]; ok {
				return v
			}
		case "env":
			for _, v := range r.later() {
				if value, ok := strings.CutPrefix(v, m[2]+"="); ok {
					return value
				}
			}
		}
		r.t.Fatalf("%s has no value", e)
		return ""
	})
}

// wanted decides a condition. ok is whether all steps before it were good.
func (r *runner) wanted(condition string, ok bool, inputs map[string]string) bool {
	status := "success"
	if r.failed {
		status = "failure"
	}
	if condition == "always()" {
		return true
	}
	if condition == "" {
		return ok
	}
	name, rest, _ := strings.Cut(condition, " ")
	value := status
	if name != "job.status" {
		value = inputs[strings.TrimPrefix(name, "inputs.")]
	}
	operator, text, _ := strings.Cut(rest, " ")
	switch same := value == strings.Trim(text, "'"); operator {
	case "==":
		return ok && same
	case "!=":
		return ok && !same
	}
	r.t.Fatalf("condition %q", condition)
	return false
}

// do executes one step.
func (r *runner) do(s *step, folder string, inputs map[string]string) error {
	switch {
	case s.Run != "":
		if folder != "" && s.Shell != "bash" {
			return fmt.Errorf("a step of an action needs its shell")
		}
		shell := []string{"-e", "-c", s.Run}
		if s.Shell == "bash" {
			shell = append([]string{"--noprofile", "--norc", "-o", "pipefail"}, shell...)
		}
		c := exec.Command("bash", shell...)
		c.Dir = r.work
		if s.Dir != "" {
			c.Dir = r.expand(s.Dir, folder, inputs)
		}
		c.Env = append(r.env, r.later()...)
		for k, v := range s.Env {
			c.Env = append(c.Env, k+"="+r.expand(v, folder, inputs))
		}
		out, err := c.CombinedOutput()
		fmt.Fprintf(&r.log, "== %s\n%s", s.Name, out)
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	case strings.HasPrefix(s.Uses, "actions/checkout@"): // the test has filled the folder
		return nil
	case strings.HasPrefix(s.Uses, "actions/setup-go@"):
		return exec.Command("go", "version").Run()
	case strings.HasPrefix(s.Uses, "actions/upload-artifact@"):
		for path := range strings.FieldsSeq(r.expand(s.With["path"], folder, inputs)) {
			if out, err := exec.Command("cp", "-r", path, r.path("artifact")).CombinedOutput(); err != nil {
				return fmt.Errorf("%w\n%s", err, out)
			}
		}
		return nil
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(s.Uses, "rdmalab/rdmalab"), "@")
	if strings.HasPrefix(s.Uses, "rdmalab/rdmalab") {
		return r.composite(filepath.Join(r.root, name), s.With)
	}
	return fmt.Errorf("there is no action %s", s.Uses)
}

// composite executes an action of this repository.
func (r *runner) composite(folder string, with map[string]string) error {
	var a action
	if err := yaml.Unmarshal([]byte(r.read(filepath.Join(folder, "action.yml"))), &a); err != nil {
		return err
	}
	inputs := map[string]string{}
	for name, in := range a.Inputs {
		inputs[name] = in.Default
	}
	for name, value := range with {
		if _, ok := inputs[name]; !ok {
			return fmt.Errorf("the action has no input %s", name)
		}
		inputs[name] = value
	}
	var failed error
	for i := range a.Runs.Steps {
		s := &a.Runs.Steps[i]
		if r.wanted(s.If, failed == nil, inputs) {
			if err := r.do(s, folder, inputs); err != nil {
				failed = errors.Join(failed, fmt.Errorf("step %q: %w", s.Name+s.Uses, err))
			}
		}
	}
	return failed
}

// job executes the steps of a job, and returns why it failed.
func (r *runner) job(steps []step) (failed error) {
	for i := range steps {
		s := &steps[i]
		if r.wanted(s.If, failed == nil, nil) {
			if err := r.do(s, "", nil); err != nil {
				r.failed = true
				failed = errors.Join(failed, fmt.Errorf("step %q: %w", s.Name+s.Uses, err))
			}
		}
	}
	return failed
}
