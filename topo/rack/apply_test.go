package rack

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Wherever the controller of an apply is killed, the rack names what is not finished, and a second
// apply finishes it. The hosts that stay keep their processes.
func TestApplyAfterDeath(t *testing.T) {
	needRoot(t)
	for i, step := range []string{
		"killed cn0", "unplugged cn0", "- host cn0", "described cn2", "linked cn2", "started cn2", "+ host cn2", "~ addresses of the hosts",
	} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			name := rackName(t, "ad"+string(rune('0'+i)))
			r := mustUp(t, name)
			before := allOf(t, r)
			out, err := exec.Command(os.Args[0], "apply-and-die", "--rack", name, "--die-after", step).CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Exited() {
				t.Fatalf("the controller did not die: %v\n%s", err, out)
			}
			if r, err = Open(name); err != nil {
				t.Fatal(err)
			}
			unfinished := allOf(t, r).Unfinished
			if _, host, _ := strings.Cut(step, " "); !strings.HasPrefix(step, "~") && slices.Contains(unfinished, host) != (step[0] != '-' && step[0] != '+') {
				t.Errorf("unfinished: %v", unfinished)
			}
			if err := applyTo(t.Context(), r, changedSpec(name)); err != nil {
				t.Fatal(err)
			}
			after := allOf(t, r)
			var names []string
			for _, h := range after.Hosts {
				names = append(names, h.Name)
				if h.State != StateUp || h.Link != LinkUp {
					t.Errorf("%+v", h)
				}
				for _, was := range before.Hosts {
					if was.Name == h.Name && (was.PID != h.PID || was.IPv4 != h.IPv4 || was.MAC != h.MAC) {
						t.Errorf("%s has changed: %+v, %+v", h.Name, was, h)
					}
				}
			}
			if !slices.Equal(names, []string{"ms0", "cn1", "cn2"}) || len(after.Unfinished) > 0 {
				t.Errorf("hosts %v, unfinished %v", names, after.Unfinished)
			}
			for _, trace := range tracesNow(t, name) {
				if strings.HasSuffix(trace, "/cn0") {
					t.Errorf("left behind: %s", trace)
				}
			}
			for _, file := range []string{r.Paths.Socket("cn0"), r.Paths.Log("cn0"), r.Paths.Netns("cn0"), r.Paths.Spec() + ".part"} {
				if exists(file) {
					t.Errorf("left behind: %s", file)
				}
			}
			if hosts, err := os.ReadFile(r.Paths.Hosts()); err != nil || strings.Contains(string(hosts), "cn0") || !strings.Contains(string(hosts), "cn2") {
				t.Errorf("hosts file: %v\n%s", err, hosts)
			}
		})
	}
}

func allOf(t *testing.T, r *Rack) Status {
	t.Helper()
	s, err := r.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The same file brings the rack up again after an apply, although its hosts have other addresses than
// those of their places in the file; another file does not.
func TestUpAfterApply(t *testing.T) {
	name := rackName(t, "ua")
	r := mustUp(t, name)
	if err := applyTo(t.Context(), r, changedSpec(name)); err != nil {
		t.Fatal(err)
	}
	again, err := Up(t.Context(), changedSpec(name))
	if h, _, ok := again.Spec.Host("cn1"); !errors.Is(err, ErrAlreadyUp) || !ok || h.IPv4.String() != "10.77.0.4" {
		t.Errorf("%v, cn1 %+v", err, h)
	}
	if _, err := Up(t.Context(), testSpec(name)); !errors.Is(err, ErrDifferent) {
		t.Errorf("another file: %v", err)
	}
}
