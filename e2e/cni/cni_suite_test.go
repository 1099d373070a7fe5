// Package cni tests that containers join a rack by the CNI plugin: with cnitool, which is a runtime
// without containers, and with podman. Specs that need podman are skipped where it is not
// installed.
package cni

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

func TestMain(m *testing.M) { fixture.Main(m) }

func TestCNI(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "cni")
}

// cnitool is the path of the tool, built once from the module whose library the plugin uses.
var cnitool string

var _ = BeforeSuite(func() {
	fixture.Build()
	dir := GinkgoT().TempDir()
	cnitool = filepath.Join(dir, "cnitool")
	out, err := exec.Command("go", "build", "-o", cnitool, "github.com/containernetworking/cni/cnitool").CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "go build cnitool: %s", out)
})

// network is a CNI network of a rack, with the plugin that a user installs.
type network struct {
	rack      *fixture.Rack
	name      string
	bin, conf string
}

func newNetwork(r *fixture.Rack, name string) *network {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	n := &network{rack: r, name: name, bin: filepath.Join(dir, "bin"), conf: filepath.Join(dir, "net.d")}
	r.OK("cni", "install", "--bin", n.bin, "--conf", n.conf, "--network", n.name)
	return n
}

// outcome is the output and the exit status of a call of the plugin.
type outcome struct {
	stdout, stderr string
	err            error
}

func (o outcome) String() string {
	return fmt.Sprintf("%s%s(%v)", o.stdout, o.stderr, o.err)
}

// tool runs cnitool.
func (n *network) tool(verb, netns, args string) outcome {
	GinkgoHelper()
	cmd := exec.Command(cnitool, verb, n.name, netns)
	cmd.Env = append(os.Environ(), "CNI_PATH="+n.bin, "NETCONFPATH="+n.conf, "CNI_IFNAME=rack0", "CNI_ARGS="+args)
	return run(cmd)
}

// call calls the plugin as a runtime does, with a configuration that the spec chooses.
func (n *network) call(verb, container, netns, stdin string) outcome {
	GinkgoHelper()
	cmd := exec.Command(filepath.Join(n.bin, "rdmalab-cni"))
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+verb, "CNI_CONTAINERID="+container, "CNI_NETNS="+netns, "CNI_IFNAME=rack0", "CNI_PATH="+n.bin)
	cmd.Stdin = strings.NewReader(stdin)
	return run(cmd)
}

func run(cmd *exec.Cmd) outcome {
	GinkgoHelper()
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	o := outcome{stdout.String(), stderr.String(), err}
	GinkgoWriter.Println("$", strings.Join(cmd.Args, " "), "\n"+o.String())
	return o
}

// guest is the part of `cni guests -o json` that the specs use.
type guest struct {
	Name      string `json:"name"`
	IPv4      string `json:"ipv4"`
	MAC       string `json:"mac"`
	Container string `json:"container"`
	Link      string `json:"link"`
}

func (n *network) guests() []guest {
	GinkgoHelper()
	var list []guest
	n.rack.JSON(&list, "cni", "guests")
	return list
}

func (n *network) names() []string {
	GinkgoHelper()
	names := []string{}
	for _, g := range n.guests() {
		names = append(names, g.Name)
	}
	return names
}

// namespace makes a network namespace, which the plugin takes for a container's. It is removed
// after the spec.
func namespace(name string) string {
	GinkgoHelper()
	name = fmt.Sprintf("rdmalab-cni-%d-%s", os.Getpid(), name)
	Expect(exec.Command("ip", "netns", "add", name).Run()).To(Succeed())
	DeferCleanup(func() {
		_ = exec.Command("ip", "netns", "del", name).Run() // a spec may have removed it
	})
	return "/run/netns/" + name
}

// inside runs a peer of the fixture in a namespace.
func inside(netns string, args ...string) outcome {
	GinkgoHelper()
	cmd := exec.Command("ip", append([]string{"netns", "exec", filepath.Base(netns), os.Args[0]}, args...)...)
	cmd.Env = append(os.Environ(), "RDMALAB_E2E_PEER=1")
	return run(cmd)
}

// result is the part of a CNI result that the specs use.
type result struct {
	Version    string `json:"cniVersion"`
	Interfaces []struct{ Name, Mac, Sandbox string }
	IPs        []struct {
		Address   string
		Interface int
	}
}

func decode(o outcome) result {
	GinkgoHelper()
	Expect(o.err).NotTo(HaveOccurred(), o.String())
	var r result
	Expect(json.Unmarshal([]byte(o.stdout), &r)).To(Succeed(), o.stdout)
	return r
}

// objects counts the objects of a host's NIC, by kind.
func (n *network) objects(host string) map[string]int {
	GinkgoHelper()
	var s struct {
		Hosts []struct {
			Name   string `json:"name"`
			Daemon struct {
				Objects map[string]int `json:"objects"`
			} `json:"daemon"`
		} `json:"hosts"`
	}
	n.rack.JSON(&s, "status")
	for _, h := range s.Hosts {
		if h.Name == host {
			return h.Daemon.Objects
		}
	}
	Fail("no host " + host)
	return nil
}
