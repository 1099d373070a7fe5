package container

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/racks"
)

// The compose file in the repository is the one that the program writes for the built-in rack.
//
// To write the file: RDMALAB_WRITE=1 go test ./topo/container -run ComposeFile
func TestComposeFileIsInStep(t *testing.T) {
	s, err := rackfile.ParseFile(racks.DefaultName, racks.Default())
	if err != nil {
		t.Fatal(err)
	}
	const file = "../../compose/docker-compose.yaml"
	want := Compose(s, PlugOutside, "the built-in rack")
	if os.Getenv("RDMALAB_WRITE") != "" {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is out of step; write it as the comment above says", file)
	}
}

// With each plug, a compose file asks for no more than three capabilities, and labels each
// container with its rack.
func TestComposeAsksForLittle(t *testing.T) {
	r := testRack(t, "small")
	for plug, services := range map[Plug]int{PlugOutside: 3, PlugHolder: 6, PlugDriver: 3} {
		var f struct {
			Services map[string]struct {
				CapAdd      []string          `yaml:"cap_add"`
				CapDrop     []string          `yaml:"cap_drop"`
				Privileged  bool              `yaml:"privileged"`
				Labels      map[string]string `yaml:"labels"`
				NetworkMode string            `yaml:"network_mode"`
				Networks    []string          `yaml:"networks"`
				Name        string            `yaml:"container_name"`
			} `yaml:"services"`
			Networks map[string]struct {
				Driver string `yaml:"driver"`
				Name   string `yaml:"name"`
			} `yaml:"networks"`
		}
		if err := yaml.Unmarshal([]byte(Compose(r, plug, "a test")), &f); err != nil {
			t.Fatal(err)
		}
		if len(f.Services) != services {
			t.Errorf("%s: %d services", plug, len(f.Services))
		}
		for name, s := range f.Services {
			if !slices.Equal(s.CapAdd, capabilities) || !slices.Equal(s.CapDrop, []string{"ALL"}) || s.Privileged {
				t.Errorf("%s %s: %+v", plug, name, s)
			}
			if s.Labels[LabelRack] != "small" || s.Labels[LabelHost] == "" || s.Labels[LabelPlug] != string(plug) {
				t.Errorf("%s %s: labels %v", plug, name, s.Labels)
			}
			if (s.NetworkMode == "") != (plug == PlugDriver) {
				t.Errorf("%s %s: network mode %q", plug, name, s.NetworkMode)
			}
		}
		for _, n := range f.Networks {
			if n.Driver != "rdmalab-small" {
				t.Errorf("%s: %+v", plug, n)
			}
		}
	}
	for _, bad := range []string{"", "Outside", "x"} {
		if _, err := ParsePlug(bad); err == nil {
			t.Errorf("plug %q passes", bad)
		}
	}
}

// The requests to the engine say the same as the compose file.
func TestBodyIsThePlan(t *testing.T) {
	r := testRack(t, "small")
	for _, plug := range Plugs() {
		for _, u := range units(r, "cn0", plug) {
			b, err := json.Marshal(u.body("small", "sha256:1"))
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{`"CapDrop":["ALL"]`, `"CapAdd":["NET_RAW","NET_ADMIN","IPC_LOCK"]`, `"ReadonlyRootfs":true`, `"rdmalab.host":"cn0"`} {
				if !strings.Contains(string(b), want) {
					t.Errorf("%s: %s lacks %s", plug, b, want)
				}
			}
			if strings.Contains(string(b), "Privileged") {
				t.Errorf("%s: %s", plug, b)
			}
		}
	}
}

// The same program makes the same image, and the image contains only the program.
func TestImageIsReproducible(t *testing.T) {
	program := static(t)
	var archives [2]bytes.Buffer
	var ids [2]string
	for i := range archives {
		image, err := NewImage(program)
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = image.ID
		if _, err := image.WriteTo(&archives[i]); err != nil {
			t.Fatal(err)
		}
	}
	if ids[0] != ids[1] || !bytes.Equal(archives[0].Bytes(), archives[1].Bytes()) {
		t.Error("two images of one program differ")
	}
	var names []string
	for tr := tar.NewReader(&archives[0]); ; {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, filepath.Base(h.Name))
		if !h.ModTime.Equal(epoch) || h.Uid != 0 || h.Uname != "" {
			t.Errorf("%s depends on who made it: %+v", h.Name, h)
		}
	}
	if len(names) != 6 || names[3] != ids[0] || names[5] != "manifest.json" { // a layout, its index, three blobs
		t.Errorf("archive has %v", names)
	}
}

// A program that needs a dynamic loader is refused with a text that says how to build it.
func TestImageOfDynamicProgram(t *testing.T) {
	f, err := elf.Open("/bin/sh")
	if err != nil {
		t.Skipf("no /bin/sh to look at: %v", err)
	}
	dynamic := slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
	if err := f.Close(); err != nil || !dynamic {
		t.Skipf("/bin/sh is static: %v", err)
	}
	if _, err := NewImage("/bin/sh"); err == nil || !strings.Contains(err.Error(), "make build") {
		t.Errorf("%v", err)
	}
	if _, err := NewImage(os.DevNull); err == nil {
		t.Error("no program is an image")
	}
}

// static builds a statically linked program for an image.
func static(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	source, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	if err := os.WriteFile(source, []byte("package main\nfunc main() {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-trimpath", "-o", program, source)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

// Containers are made as planned, and a missing image is loaded once for all of them.
func TestStartMakesWhatIsMissing(t *testing.T) {
	f := newFakeEngine(t)
	h := NewHosts("small", Settings{Socket: f.socket, Plug: PlugHolder})
	r := testRack(t, "small")
	if err := h.Start(t.Context(), r, "cn0", "/bin/does-not-exist"); err == nil || len(f.containers) != 0 {
		t.Errorf("a program that is not there was started: %v", err)
	}
	program := static(t)
	image, err := NewImage(program)
	if err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	f.images[ImageName], f.loads = "another", image.Program
	f.mu.Unlock()
	var wg sync.WaitGroup
	for _, host := range r.HostNames() {
		wg.Go(func() {
			if err := h.Start(t.Context(), r, host, program); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	loads := 0
	for _, a := range f.asked {
		if strings.HasSuffix(a, "/images/load") {
			loads++
		}
	}
	if loads != 1 || len(f.containers) != 6 {
		t.Errorf("%d loads, %d containers; want 1 and 6", loads, len(f.containers))
	}
	for name, c := range f.containers {
		if c.State.Status != "running" || c.Config.Labels[LabelRack] != "small" {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// A container that has the name of a host's container, but not the rack's labels, is never started.
// Such names exist: host c of rack a-b and host b-c of rack a have the same name.
func TestStartLeavesNamesakes(t *testing.T) {
	for _, rack := range []string{"", "other"} {
		f := newFakeEngine(t)
		name := ContainerName("small", "cn0")
		f.add(name, rack, "cn0", PartHost, "exited", 0)
		program := static(t)
		image, err := NewImage(program)
		if err != nil {
			t.Fatal(err)
		}
		f.images[ImageName] = image.Program
		h := NewHosts("small", Settings{Socket: f.socket, Plug: PlugOutside})
		if err := h.Start(t.Context(), testRack(t, "small"), "cn0", program); err == nil || !strings.Contains(err.Error(), "already in use") {
			t.Errorf("labels of rack %q: %v", rack, err)
		}
		if c := f.containers[name]; c.State.Status != "exited" {
			t.Errorf("labels of rack %q: the container of another rack is %s", rack, c.State.Status)
		}
	}
}

// If the image of another program takes the name again and again, the start fails, and that image
// is not used.
func TestEnsureGivesUp(t *testing.T) {
	f := newFakeEngine(t)
	f.loads = "another"
	e, err := Connect(t.Context(), f.socket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Ensure(t.Context(), &Image{Program: "ours"}); err == nil || !strings.Contains(err.Error(), "again and again") {
		t.Errorf("%v", err)
	}
}
