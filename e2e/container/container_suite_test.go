// Package container tests hosts that are containers: they behave like other hosts, and the engine's
// own commands can kill, stop, restart and disconnect them. `make e2e-docker` runs it, and the
// suites smoke, transport and chaos on containers.
package container

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

func TestMain(m *testing.M) { fixture.Main(m) }

func TestContainer(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "container", Label("docker"))
}

var _ = BeforeSuite(func() {
	if out, err := exec.Command("docker", "version", "--format", "{{.Server.Version}}").CombinedOutput(); err != nil {
		Skip(fmt.Sprintf("no docker engine answers: %s", out))
	}
	// Racks that do not choose a runtime have containers in this suite.
	if !fixture.InContainers() {
		Expect(os.Setenv("RDMALAB_E2E_RUNTIME", "docker")).To(Succeed())
	}
	fixture.Build()
})

// docker runs a command of the engine, as a user does.
func docker(args ...string) string {
	GinkgoHelper()
	out, err := exec.Command("docker", args...).CombinedOutput()
	GinkgoWriter.Printf("$ docker %s\n%s", strings.Join(args, " "), out)
	Expect(err).NotTo(HaveOccurred(), string(out))
	return string(out)
}

// name returns the name of a host's container.
func name(rack *fixture.Rack, host string) string { return "rdmalab-" + rack.Name + "-" + host }

// container is the part of `status -o json` that describes a host's container.
type container struct {
	State   string `json:"state"`
	Plugged bool   `json:"plugged"`
	Plugs   int    `json:"plugs"`
	Seen    []struct {
		What string `json:"what"`
	} `json:"seen"`
}

// containerOf returns what status reports of a host's container.
func containerOf(rack *fixture.Rack, host string) container {
	GinkgoHelper()
	var s struct {
		Runtime string `json:"runtime"`
		Hosts   []struct {
			Name      string    `json:"name"`
			Container container `json:"container"`
		} `json:"hosts"`
	}
	rack.JSON(&s, "status")
	Expect(s.Runtime).To(Equal("docker"))
	for _, h := range s.Hosts {
		if h.Name == host {
			return h.Container
		}
	}
	Fail("no host " + host)
	return container{}
}

// events returns the engine's recent events of a host's container.
func events(rack *fixture.Rack, host string) func() []string {
	return func() []string {
		var out []string
		for _, s := range containerOf(rack, host).Seen {
			out = append(out, s.What)
		}
		return out
	}
}

// works checks that WRITEs pass between two hosts.
func works(rack *fixture.Rack, from, to string) {
	GinkgoHelper()
	rack.OK("perf", "verify", "--from", from, "--to", to)
}
