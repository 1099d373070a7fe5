package cni

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// image is what the containers of the specs run.
const image = "localhost/rdmalab-user:test"

// podman is an engine that keeps all its files below a folder of the spec.
type podman struct {
	dir, conf string
}

// newPodman makes an engine whose containers can join networks of n.
func newPodman(n *network) *podman {
	GinkgoHelper()
	for _, program := range []string{"podman", "runc"} {
		if _, err := exec.LookPath(program); err != nil {
			Skip(program + " is not installed (apt-get install --no-install-recommends podman runc)")
		}
	}
	dir, err := os.MkdirTemp("", "rdmalab-podman-") // sockets below it must have short names
	Expect(err).NotTo(HaveOccurred())
	p := &podman{dir: dir, conf: filepath.Join(dir, "containers.conf")}
	conf := fmt.Sprintf(`[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
[network]
network_backend = "cni"
network_config_dir = %q
cni_plugin_dirs = [%q]
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
`, n.conf, n.bin)
	Expect(os.WriteFile(p.conf, []byte(conf), 0o600)).To(Succeed())
	DeferCleanup(func() {
		p.do(nil, "rm", "-f", "-t", "0", "--all")
		_ = os.RemoveAll(dir) // the mounts that podman leaves are below its folder
	})
	if o := p.do(nil, "info"); o.err != nil {
		Skip("podman does not run here: " + o.stderr)
	}
	return p
}

func (p *podman) do(stdin []byte, args ...string) outcome {
	GinkgoHelper()
	at := func(name string) string { return filepath.Join(p.dir, name) }
	all := append([]string{"--root", at("root"), "--runroot", at("run"), "--tmpdir", at("tmp"), "--storage-driver", "vfs"}, args...)
	cmd := exec.Command("podman", all...)
	cmd.Env = append(os.Environ(), "CONTAINERS_CONF="+p.conf)
	cmd.Stdin = bytes.NewReader(stdin)
	return run(cmd)
}

func (p *podman) ok(args ...string) string {
	GinkgoHelper()
	o := p.do(nil, args...)
	Expect(o.err).NotTo(HaveOccurred(), o.String())
	return o.stdout
}

// importImage makes the image of a user from static programs, without any registry.
func (p *podman) importImage(files map[string]string) {
	GinkgoHelper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for name, path := range files {
		b, err := os.ReadFile(path)
		Expect(err).NotTo(HaveOccurred())
		Expect(w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(b))})).To(Succeed())
		_, err = w.Write(b)
		Expect(err).NotTo(HaveOccurred())
	}
	Expect(w.Close()).To(Succeed())
	o := p.do(buf.Bytes(), "import", "-", image)
	Expect(o.err).NotTo(HaveOccurred(), o.String())
}

var _ = Describe("containers of podman", Label("cni", "podman"), Ordered, func() {
	var n *network
	var p *podman
	var state, sockets string
	BeforeAll(func() {
		n = newNetwork(fixture.Up(fixture.Small), "podman")
		p = newPodman(n)
		files := map[string]string{"rdmalab": fixture.Binary()}
		for name, dir := range map[string]string{
			"client": "../../compose/examples/goclient", "hello": "../../compose/examples/goclient/hello", "example": "../../softrnic/ipc/example",
		} {
			files[name] = filepath.Join(GinkgoT().TempDir(), name)
			cmd := exec.Command("go", "build", "-trimpath", "-o", files[name], ".")
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
			out, err := cmd.CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), string(out))
		}
		p.importImage(files)
		state = "/run/rdmalab/" + n.rack.Name
		sockets = state + "/sock"
	})

	It("use the NIC of a host by its socket alone, without any network", func() {
		out := p.ok("run", "--rm", "--network", "none", "-v", sockets+":"+sockets, "-e", "RDMALAB_VERBS="+sockets+"/cn0.verbs",
			image, "/client", "10.77.0.4")
		Expect(out).To(ContainSubstring("hello, rack"))
	})

	It("run the example of 30 lines, and leave nothing on the NIC when they are killed during their WRITEs", func() {
		mount := []string{"-v", sockets + ":" + sockets, "-e", "RDMALAB_VERBS=" + sockets + "/cn0.verbs", image}
		out := p.ok(append(append([]string{"run", "--rm", "--network", "none"}, mount...), "/hello", "10.77.0.4")...)
		Expect(out).To(ContainSubstring(`"hello, rack"; 0 were here before`))
		before := n.objects("cn0")
		p.ok(append(append([]string{"run", "-d", "--name", "writer", "--network", "none"}, mount...), "/example", "10.77.0.4", "write_bw", "100000000")...)
		sends := func() uint64 { return n.rack.Counters("cn0")["rdma_sends"] }
		then := sends()
		Eventually(sends, fixture.Patience, "50ms").Should(BeNumerically(">", then+1000))
		Expect(n.objects("cn0")).NotTo(Equal(before))
		p.ok("kill", "writer")
		Eventually(func() map[string]int { return n.objects("cn0") }, fixture.Patience, "50ms").Should(Equal(before))
		p.ok("rm", "-f", "-t", "0", "writer")
		n.rack.OK("perf", "verify", "--from", "cn0", "--to", "ms0")
	})

	It("run unmodified programs by the folder of sockets and one variable", func() {
		for _, program := range []string{"ibv_devinfo", "rping"} {
			if _, err := exec.LookPath(program); err != nil {
				Skip(program + " is not installed: apt-get install ibverbs-utils ibverbs-providers rdmacm-utils")
			}
		}
		const rdma = "localhost/rdmalab-rdma:test"
		files, err := exec.Command("tar", "-c", "-C", fixture.RDMAPrograms("ibv_devinfo", "rping"), ".").Output()
		Expect(err).NotTo(HaveOccurred())
		o := p.do(files, "import", "-", rdma)
		Expect(o.err).NotTo(HaveOccurred(), o.String())
		on := func(host string, more ...string) []string {
			return append([]string{"--network", "none", "-v", sockets + ":/rack", "-e", "LD_PRELOAD=/rack/" + host + ".so"}, more...)
		}
		out := p.ok(append([]string{"run", "--rm"}, on("cn0", rdma, "/bin/ibv_devinfo", "-v")...)...)
		Expect(out).To(ContainSubstring("::ffff:10.77.0.2, RoCE v2"))
		p.ok(append([]string{"run", "-d", "--name", "server"}, on("ms0", rdma, "/bin/rping", "-s", "-C", "3", "-V")...)...)
		client := append([]string{"run", "--rm"}, on("cn0", rdma, "/bin/rping", "-c", "-v", "-V", "-C", "3", "-a", "10.77.0.4")...)
		Eventually(func() (string, error) { // it may be too early for the server's listener
			o := p.do(nil, client...)
			return o.stdout, o.err
		}, fixture.Patience, "50ms").Should(ContainSubstring("ping data: rdma-ping-2"))
		Expect(p.ok("wait", "server")).To(Equal("0\n"))
		p.ok("rm", "server")
	})

	It("have the network of a host and its NIC", func() {
		out := p.ok("run", "--rm", "--network", "ns:"+state+"/netns/cn1", "-v", sockets+":"+sockets, "-e", "RDMALAB_VERBS="+sockets+"/cn1.verbs",
			image, "/client", "10.77.0.4")
		Expect(out).To(ContainSubstring("hello, rack"))
	})

	It("join the rack with a NIC of their own, and again after a crash", func() {
		p.ok("run", "-d", "--name", "web", "--network", n.name+":interface_name=rack0,mac=02:aa:00:00:00:07",
			"--cap-drop", "all", "--cap-add", "NET_RAW,NET_ADMIN,IPC_LOCK", "-v", state+":"+state+":bind",
			image, "/rdmalab", "host", "--rack-dir", state, "--name", "web")
		verify := func() fixture.Result { return n.rack.Run("perf", "verify", "--from", "web", "--to", "ms0") }
		Eventually(verify, fixture.Patience, "200ms").Should(fixture.HaveExited(0))
		g := n.guests()
		Expect(g).To(HaveLen(1))
		Expect(g[0].Name).To(Equal("web"))
		Expect(g[0].MAC).To(Equal("02:aa:00:00:00:07"))
		Expect(n.rack.OK("status")).To(ContainSubstring("web"))
		out := p.ok("exec", "-e", "RDMALAB_VERBS="+sockets+"/web.verbs", "web", "/client", "10.77.0.4")
		Expect(out).To(ContainSubstring("hello, rack"))

		p.ok("kill", "web")
		Eventually(n.names, fixture.Patience, "100ms").Should(BeEmpty())
		p.ok("start", "web")
		Eventually(verify, fixture.Patience, "200ms").Should(fixture.HaveExited(0))
		p.ok("rm", "-f", "-t", "0", "web")
		Expect(n.names()).To(BeEmpty())
		Expect(n.rack.OK("status")).NotTo(ContainSubstring("web"))
	})
})
