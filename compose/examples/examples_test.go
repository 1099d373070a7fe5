// Package examples tests the example projects and the manifests of Kubernetes. It builds the
// projects, and compares the manifests with what the runtimes need, because it cannot run them.
package examples

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// inModule checks that the go.mod of an example is complete, and returns a function that runs the go command there,
// in a workspace with the repository.
func inModule(t *testing.T, folder string) (run func(args ...string)) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	within := func(workspace string, args ...string) {
		t.Helper()
		cmd := exec.Command("go", args...)
		cmd.Dir = folder
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath", "GOWORK="+workspace) // as make build does
		if b, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, b)
		}
	}
	within("off", "mod", "tidy", "-diff")
	work := filepath.Join(t.TempDir(), "go.work")
	if err := os.WriteFile(work, fmt.Appendf(nil, "go 1.26.0\n\nuse (\n\t%q\n\t%q\n)\n", root, filepath.Join(root, "compose/examples", folder)), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(args ...string) {
		t.Helper()
		within(work, args...)
	}
}

// The client of the README is a Go module of its own, as a user's program is: its go.mod is complete
// and names this repository. It is built in a workspace with the repository, because the go command
// compiles every package once more for a module that is replaced.
func TestClientBuilds(t *testing.T) {
	out := filepath.Join(t.TempDir(), "client")
	run := inModule(t, "goclient")
	run("vet", "./...")
	run("build", "-ldflags=-s -w", "-o", out, ".")
	run("build", "-ldflags=-s -w", "-o", out+"-hello", "./hello")
	run("build", "-ldflags=-s -w", "-o", out+"-greet", "./greet")
	run("build", "-ldflags=-s -w", "-o", out+"-beyond", "./beyond")
	for program, arg := range map[string]string{out: "10.77.0.3", out + "-hello": "10.77.0.3", out + "-beyond": "10.77.0.3", out + "-greet": "clover"} {
		b, err := exec.Command(program, arg).CombinedOutput()
		if err == nil || !strings.Contains(string(b), "RDMALAB_VERBS is not set") {
			t.Errorf("outside of a rack: %v, %s", err, b)
		}
	}
	text, err := os.ReadFile("goclient/hello/main.go")
	if lines := strings.Count(string(text), "\n"); err != nil || lines > 30 {
		t.Errorf("the example of 30 lines has %d, %v", lines, err)
	}
}

// A module of its own makes rdmalab with a switch program, a fault, a congestion control and a store besides: the go.mod is
// complete, its tests pass, and commands and rack files know the extensions. The page about it shows the
// code as it is.
func TestOwnExtensions(t *testing.T) {
	out := filepath.Join(t.TempDir(), "mine")
	run := inModule(t, "own")
	run("vet", "./...")
	run("test", "./...")
	run("build", "-ldflags=-s -w", "-o", out, ".")
	file := filepath.Join(t.TempDir(), "rack.yaml")
	rack := "name: own\nswitch: {program: hundredth}\nhosts: [{name: cn0, role: compute}, {name: ms0, role: memory}]\n" +
		"congestion: {algorithm: patient, rp_max_rate: 10Gbit}\nfaults: [{link: cn0, kind: stutter, probability: 50%}]\n"
	if err := os.WriteFile(file, []byte(rack), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(program(t), "validate", file).CombinedOutput(); err == nil || !strings.Contains(string(out), `"hundredth" is unknown`) {
		t.Errorf("rdmalab itself knows the program: %v, %s", err, out)
	}
	for _, c := range []struct{ args, says string }{
		{"validate " + file, "switch program hundredth with 0 rules, 1 faults"},
		{"inject --help", "  stutter"},
		{"--help", "shelf "},
		{"sim --help", "patient"},
		{"sim shelf --seeds 1", "shelf: 1 seeds from 1: ok"},
		{"run ycsb --on sim --file " + file + " --store shelf --keys 10", "shelf, workload a"},
	} {
		if b, err := exec.Command(out, strings.Fields(c.args)...).CombinedOutput(); err != nil || !strings.Contains(string(b), c.says) {
			t.Errorf("%s: %v\n%s", c.args, err, b)
		}
	}
	page, err := os.ReadFile("../../docs/guide/first-switch-program.md")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, f := range []string{"main.go", "hundredth/hundredth.go", "stutter/stutter.go", "patient/patient.go"} {
		text, err := os.ReadFile(filepath.Join("own", f))
		if err != nil {
			t.Fatal(err)
		}
		code.Write(text)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(page, -1)
	if len(blocks) != 4 {
		t.Errorf("the page has %d blocks of code", len(blocks))
	}
	for _, b := range blocks {
		if !strings.Contains(code.String(), string(b[1])) {
			t.Errorf("no file has this code of the page:\n%s", b[1])
		}
	}
}

type object struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Metadata   struct {
		Name        string            `yaml:"name"`
		Namespace   string            `yaml:"namespace"`
		Labels      map[string]string `yaml:"labels"`
		Annotations map[string]string `yaml:"annotations"`
	} `yaml:"metadata"`
	Spec spec `yaml:"spec"`
}

type spec struct {
	// keys of a network
	Config string `yaml:"config"`
	// keys of a daemon set
	Selector struct {
		MatchLabels map[string]string `yaml:"matchLabels"`
	} `yaml:"selector"`
	Template *object `yaml:"template"`
	// keys of a pod
	NodeSelector   map[string]string `yaml:"nodeSelector"`
	HostNetwork    bool              `yaml:"hostNetwork"`
	HostPID        bool              `yaml:"hostPID"`
	InitContainers []container       `yaml:"initContainers"`
	Containers     []container       `yaml:"containers"`
	Volumes        []struct {
		Name     string    `yaml:"name"`
		EmptyDir *struct{} `yaml:"emptyDir"`
		HostPath *struct {
			Path string `yaml:"path"`
			Type string `yaml:"type"`
		} `yaml:"hostPath"`
	} `yaml:"volumes"`
}

type container struct {
	Name            string              `yaml:"name"`
	Image           string              `yaml:"image"`
	ImagePullPolicy string              `yaml:"imagePullPolicy"`
	Command         []string            `yaml:"command"`
	Env             []map[string]string `yaml:"env"`
	SecurityContext struct {
		Capabilities struct{ Add, Drop []string } `yaml:"capabilities"`
	} `yaml:"securityContext"`
	VolumeMounts []struct {
		Name             string `yaml:"name"`
		MountPath        string `yaml:"mountPath"`
		MountPropagation string `yaml:"mountPropagation"`
	} `yaml:"volumeMounts"`
}

// manifest reads a file of one object. A key that the schema above does not have is a mistake.
func manifest(t *testing.T, name string) object {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../k8s", name))
	if err != nil {
		t.Fatal(err)
	}
	dec := yaml.NewDecoder(bytes.NewReader(b), yaml.Strict())
	var o object
	if err := dec.Decode(&o); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if err := dec.Decode(new(object)); !errors.Is(err, io.EOF) {
		t.Errorf("%s: more than one object, or %v", name, err)
	}
	return o
}

func TestNetwork(t *testing.T) {
	o := manifest(t, "network.yaml")
	if o.APIVersion != "k8s.cni.cncf.io/v1" || o.Kind != "NetworkAttachmentDefinition" || o.Metadata.Name == "" {
		t.Errorf("%+v", o)
	}
	var c struct {
		CNIVersion, Name string
		Plugins          []struct {
			Type, Rack   string
			Capabilities map[string]bool
		}
	}
	dec := json.NewDecoder(strings.NewReader(o.Spec.Config))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		t.Fatal(err)
	}
	if c.CNIVersion != "1.0.0" || c.Name == "" || len(c.Plugins) != 1 || c.Plugins[0].Type != "rdmalab-cni" || c.Plugins[0].Rack == "" || !c.Plugins[0].Capabilities["mac"] {
		t.Errorf("%+v", c)
	}
	pod := manifest(t, "pod.yaml")
	if got := pod.Metadata.Annotations["k8s.v1.cni.cncf.io/networks"]; got != o.Metadata.Name+"@rack0" {
		t.Errorf("the pod joins %q", got)
	}
}

func TestPods(t *testing.T) {
	pod := manifest(t, "pod.yaml")
	if pod.APIVersion != "v1" || pod.Kind != "Pod" {
		t.Errorf("%+v", pod)
	}
	checkPod(t, "pod.yaml", &pod.Spec)
	nic := pod.Spec.Containers[0]
	if got := nic.SecurityContext.Capabilities; !slices.Equal(got.Add, []string{"NET_RAW", "NET_ADMIN", "IPC_LOCK"}) || !slices.Equal(got.Drop, []string{"ALL"}) {
		t.Errorf("capabilities %+v", got)
	}
	if name := nic.Command[slices.Index(nic.Command, "--name")+1]; name != pod.Metadata.Name {
		t.Errorf("the NIC is called %s in a pod called %s", name, pod.Metadata.Name)
	}
	set := manifest(t, "plugin.yaml")
	if set.APIVersion != "apps/v1" || set.Kind != "DaemonSet" || set.Spec.Template == nil {
		t.Fatalf("%+v", set)
	}
	for k, v := range set.Spec.Selector.MatchLabels {
		if set.Spec.Template.Metadata.Labels[k] != v {
			t.Errorf("the selector %s=%s does not match its own pods", k, v)
		}
	}
	if len(set.Spec.Selector.MatchLabels) == 0 {
		t.Error("no selector")
	}
	checkPod(t, "plugin.yaml", &set.Spec.Template.Spec)
}

// checkPod checks that the volumes, images and networks that a pod refers to exist.
func checkPod(t *testing.T, file string, s *spec) {
	t.Helper()
	volumes := make(map[string]bool)
	for _, v := range s.Volumes {
		volumes[v.Name] = v.EmptyDir != nil || v.HostPath != nil && strings.HasPrefix(v.HostPath.Path, "/")
	}
	if len(s.Containers) == 0 || len(s.NodeSelector) == 0 {
		t.Errorf("%s: %+v", file, s)
	}
	for _, c := range append(slices.Clone(s.InitContainers), s.Containers...) {
		if c.Name == "" || c.Image == "" || len(c.Command) == 0 {
			t.Errorf("%s: container %+v", file, c)
		}
		for _, m := range c.VolumeMounts {
			if !volumes[m.Name] || !strings.HasPrefix(m.MountPath, "/") {
				t.Errorf("%s: container %s mounts %+v", file, c.Name, m)
			}
		}
		if c.Command[0] == "/rdmalab" {
			checkCommand(t, file, c.Command[1:])
		}
	}
}

// checkCommand asks the program whether it knows the command.
func checkCommand(t *testing.T, file string, args []string) {
	t.Helper()
	words := args
	for i, a := range args {
		if strings.HasPrefix(a, "-") {
			words = args[:i]
			break
		}
	}
	out, err := exec.Command(program(t), append(slices.Clone(words), "--help")...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "rdmalab "+words[0]) {
		t.Errorf("%s: rdmalab %v: %v\n%s", file, words, err, out)
	}
	for _, a := range args {
		if strings.HasPrefix(a, "--") && !strings.Contains(string(out), a+" ") {
			t.Errorf("%s: rdmalab %v has no flag %s", file, words, a)
		}
	}
}

var built string

// program builds rdmalab once, without what debuggers need: to link that takes as long as the rest.
func program(t *testing.T) string {
	t.Helper()
	if built == "" {
		built = filepath.Join(dir, "rdmalab")
		if b, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", built, "../../cmd/rdmalab").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, b)
		}
	}
	return built
}

var dir string

func TestMain(m *testing.M) {
	var err error
	if dir, err = os.MkdirTemp("", "rdmalab-examples-"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(dir) // it is below the machine's temporary folder
	os.Exit(code)
}
