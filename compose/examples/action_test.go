package examples

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// stepsOf reads the steps of the one job of the workflow, with this rack name for the action.
func stepsOf(t *testing.T, rack string, with map[string]string) []step {
	t.Helper()
	b, err := os.ReadFile("rack-in-ci.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var w struct {
		Jobs map[string]struct{ Steps []step }
	}
	if err := yaml.Unmarshal(b, &w); err != nil {
		t.Fatal(err)
	}
	steps := w.Jobs["rack"].Steps
	for i := range steps {
		if strings.HasPrefix(steps[i].Uses, "rdmalab/rdmalab@") {
			steps[i].With = map[string]string{"rack": rack}
			for k, v := range with {
				steps[i].With[k] = v
			}
		}
	}
	if len(steps) != 4 {
		t.Fatalf("%d steps", len(steps))
	}
	return steps
}

// job makes a runner whose job's repository has the example goclient as cmd/client.
func job(t *testing.T, rack string) *runner {
	t.Helper()
	r := newRunner(t)
	client := r.read("goclient/main.go")
	r.write(filepath.Join(r.work, "cmd/client/main.go"), client)
	r.write(filepath.Join(r.work, "go.mod"), "module example.com/user\n\ngo 1.26.0\n")
	t.Cleanup(func() {
		down := exec.Command(program(t), "--rack", rack, "down")
		if os.Geteuid() != 0 {
			down = exec.Command("sudo", append([]string{"-n"}, down.Args...)...)
		}
		if out, err := down.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	return r
}

// rackIsGone reports a rack that a job has left.
func rackIsGone(t *testing.T, rack string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join("/run/rdmalab", rack)); err == nil {
		t.Errorf("rack %s is left", rack)
	}
}

// The workflow runs from its first step to its last: the rack comes up, the program of another module runs on a host
// with losses, the summary of the job and the artifact have the results, and the rack is gone.
func TestWorkflow(t *testing.T) {
	r := job(t, "workflow-test")
	if err := r.job(stepsOf(t, "workflow-test", nil)); err != nil {
		t.Fatal(err)
	}
	summary, junit := r.read(r.path("summary")), r.read(r.path("artifact/junit.xml"))
	for _, want := range []string{`rack "workflow-test" is up`, "| ok | `exec cn0 -- ./client 10.77.0.3` |", "| ok | `perf verify ", "\n0 of 3 failed.\n"} {
		if !strings.Contains(summary, want) {
			t.Errorf("the summary lacks %q:\n%s", want, summary)
		}
	}
	if !strings.Contains(junit, `tests="3" failures="0" errors="0"`) {
		t.Errorf("the JUnit file of the artifact:\n%s", junit)
	}
	rackIsGone(t, "workflow-test")
}

// A program that fails makes the job fail; the summary says which, the artifact has a bundle, and the rack is gone.
func TestWorkflowFails(t *testing.T) {
	r := job(t, "workflow-fails")
	steps := stepsOf(t, "workflow-fails", nil)
	steps[2].Run = "sudo rdmalab link cn0 down\nsudo rdmalab perf verify --from cn0 --to ms0 --op-timeout 1s\n"
	err := r.job(steps)
	if err == nil || !r.failed || !strings.Contains(err.Error(), "perf verify") && !strings.Contains(err.Error(), "cn0") {
		t.Errorf("the job ended with %v", err)
	}
	if summary := r.read(r.path("summary")); !strings.Contains(summary, "| **failed** | `perf verify ") || !strings.Contains(summary, "1 of 2 failed.") {
		t.Errorf("the summary says\n%s", summary)
	}
	if text := r.read(r.path("artifact/bundles/at-the-end/README.txt")); text == "" {
		t.Errorf("no bundle in the artifact; the job said\n%s", &r.log)
	}
	rackIsGone(t, "workflow-fails")
}

// The action installs a release by its checksum, and none whose checksum is another one.
func TestActionInstallsARelease(t *testing.T) {
	r := job(t, "action-release")
	folder := t.TempDir()
	name := "rdmalab_v9.9.9_linux_" + runtime.GOARCH
	if err := os.MkdirAll(filepath.Join(folder, "v9.9.9", name), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][]string{
		{"cp", program(t), filepath.Join(folder, "v9.9.9", name, "rdmalab")},
		{"tar", "-C", filepath.Join(folder, "v9.9.9"), "-czf", filepath.Join(folder, "v9.9.9", name+".tar.gz"), name},
	} {
		if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	archive := r.read(filepath.Join(folder, "v9.9.9", name+".tar.gz"))
	sums := fmt.Sprintf("%x  %s.tar.gz\n", sha256.Sum256([]byte(archive)), name)
	r.write(filepath.Join(folder, "v9.9.9/SHA256SUMS"), "0000  other.deb\n"+sums)
	server := httptest.NewServer(http.FileServer(http.Dir(folder)))
	defer server.Close()

	steps := stepsOf(t, "action-release", map[string]string{"version": "v9.9.9", "releases": server.URL})
	if err := r.job(append(steps[:2:2], steps[3])); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(r.read(r.path("summary")), "\n0 of 1 failed.\n") || strings.Contains(r.log.String(), "Build rdmalab") {
		t.Errorf("the job said\n%s", &r.log)
	}

	r.write(filepath.Join(folder, "v9.9.9/SHA256SUMS"), strings.Repeat("0", 64)+"  "+name+".tar.gz\n")
	bad := job(t, "action-release")
	if err := bad.job(steps[:2]); err == nil || !strings.Contains(err.Error(), "Download a release") || strings.Contains(bad.log.String(), "== Install") {
		t.Errorf("a release with another checksum: %v\n%s", err, &bad.log)
	}
}
