package verbs

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// pair is a server on ms0, which listens at a TCP port, and a client on cn0. SERVER in the client's
// arguments stands for the address of ms0.
type pair struct {
	server, client string
	port           string // as /proc/net/tcp has it
	env            []string
	said           string // what the client prints
}

// run runs both.
func (s pair) run(rack *fixture.Rack) {
	GinkgoHelper()
	need(strings.Fields(s.server)[0])
	args := func(host, program string) []string {
		return append(append([]string{"exec", host, "--", "timeout", "90", "env"}, s.env...), strings.Fields(strings.ReplaceAll(program, "SERVER", rack.Host("ms0").IPv4))...)
	}
	ended := make(chan fixture.Result, 1)
	go func() {
		defer GinkgoRecover()
		ended <- rack.Run(args("ms0", s.server)...)
	}()
	Eventually(func() string {
		return rack.Run("exec", "ms0", "--", "cat", "/proc/net/tcp", "/proc/net/tcp6").Stdout
	}).WithTimeout(20 * time.Second).Should(MatchRegexp(":" + s.port + " [0-9A-F]+:0000 0A "))
	client := rack.Run(args("cn0", s.client)...)
	if client.Code != 0 || s.server == "qperf" { // which serves on
		rack.Run("exec", "ms0", "--", "pkill", strings.Fields(s.server)[0])
	}
	var server fixture.Result
	Eventually(ended).WithTimeout(100 * time.Second).Should(Receive(&server))
	Expect(client).To(fixture.HaveExited(0))
	Expect(client.Stdout + client.Stderr).To(MatchRegexp(s.said))
}

// ucx is what UCX needs to know to use the NIC and nothing else.
var ucx = []string{"UCX_TLS=rc_v,ud_v,self", "UCX_NET_DEVICES=rxe0:1"}

const (
	portQperf = "4D35"
	portUCX   = "3419"
	portFI    = "B9E8"
)

func ofUCX(args, said string) pair {
	server := "ucx_perftest"
	if at := strings.Index(args, "-d rxe0"); at >= 0 {
		server += " " + args[at:]
		server, _, _ = strings.Cut(server, " -t")
	}
	return pair{server, "ucx_perftest SERVER " + args, portUCX, ucx, said}
}

const final = `Final: +100 `

// others are programs of other packages.
var others = map[string]pair{
	"qperf, RC":                    {"qperf", "qperf -t 1 -cm 1 SERVER rc_lat rc_bw rc_rdma_read_bw rc_rdma_write_bw rc_compare_swap_mr rc_fetch_add_mr", portQperf, nil, `(?s)rc_lat.*rc_fetch_add_mr`},
	"UCX, tagged messages":         ofUCX("-t tag_lat -n 100 -s 1024", final),
	"UCX, large tagged messages":   ofUCX("-t tag_lat -n 100 -s 100000", final),
	"UCX, active messages":         ofUCX("-t ucp_am_lat -n 100 -s 8", final),
	"UCX, put":                     ofUCX("-t ucp_put_lat -n 100 -s 1024", final),
	"UCX, get":                     ofUCX("-t ucp_get -n 100 -s 1024", final),
	"UCX, atomics":                 ofUCX("-t ucp_fadd -n 100 -s 8", final),
	"UCX, active messages over UD": ofUCX("-d rxe0:1 -x ud_verbs -t am_lat -n 100 -s 8", final),
	"libfabric, RDM":               {"fi_pingpong -p verbs -e rdm -c -S 4096", "fi_pingpong -p verbs -e rdm -c -S 4096 SERVER", portFI, nil, `4k +10 +=10`},
	"libfabric, datagrams":         {"fi_pingpong -p verbs -e dgram -c -S 1024", "fi_pingpong -p verbs -e dgram -c -S 1024 SERVER", portFI, nil, `1k +10 +=10`},
}

var _ = Describe("unmodified programs of other packages", Ordered, func() {
	var rack *fixture.Rack
	BeforeAll(func() { rack = fixture.Up(fixture.Small) })

	for _, name := range slices.Sorted(maps.Keys(others)) {
		It("run: "+name, func() { others[name].run(rack) })
	}

	It("find the NIC in /sys/class without libibverbs", func() {
		Expect(rack.OK("exec", "cn0", "--", "cat", "/sys/class/infiniband/rxe0/ports/1/gids/0")).To(HavePrefix("0000:0000:0000:0000:0000:ffff:"))
		Expect(rack.OK("exec", "cn0", "--", "ls", "/sys/class/net")).To(ContainSubstring("lo"))
	})

	It("describe the NIC: ucx_info, fi_info", func() {
		need("ucx_info")
		need("fi_info")
		Expect(rack.OK("exec", "cn0", "--", "ucx_info", "-d")).To(And(ContainSubstring("rc_verbs"), ContainSubstring("ud_verbs"), ContainSubstring("rdmacm")))
		Expect(rack.OK("exec", "cn0", "--", "fi_info", "-p", "verbs")).To(And(ContainSubstring("FI_EP_MSG"), ContainSubstring("FI_EP_DGRAM"), ContainSubstring("FI_EP_RDM")))
	})

	It("copy a file: rcopy", func() {
		dir := GinkgoT().TempDir()
		sent := bytes.Repeat([]byte("0123456789abcdef"), 50000)
		Expect(os.WriteFile(filepath.Join(dir, "from"), sent, 0o644)).To(Succeed())
		stop := rack.Start("exec", "ms0", "--", "timeout", "90", "rcopy")
		Eventually(func() int { return listeners(rack, "ms0") }).WithTimeout(20 * time.Second).Should(BeNumerically(">", 0))
		client := rack.Run("exec", "cn0", "--", "timeout", "60", "rcopy", filepath.Join(dir, "from"), rack.Host("ms0").IPv4+":"+filepath.Join(dir, "to"))
		Expect(client).To(fixture.HaveExited(0))
		Eventually(func() ([]byte, error) { return os.ReadFile(filepath.Join(dir, "to")) }).WithTimeout(20 * time.Second).Should(Equal(sent))
		rack.Run("exec", "ms0", "--", "pkill", "rcopy")
		stop()
	})

	It("make many connections: cmtime", func() {
		stop := rack.Start("exec", "ms0", "--", "timeout", "90", "cmtime")
		Eventually(func() int { return listeners(rack, "ms0") }).WithTimeout(20 * time.Second).Should(BeNumerically(">", 0))
		out := rack.Run("exec", "cn0", "--", "timeout", "60", "cmtime", "-c", "20", "-s", rack.Host("ms0").IPv4)
		Expect(out).To(fixture.HaveExited(0))
		Expect(out.Stdout).To(MatchRegexp(`(?s)connect +:.*destroy +:`))
		rack.Run("exec", "ms0", "--", "pkill", "cmtime") // which serves on
		stop()
	})

	It("write over RDMA: fio", func() {
		need("fio")
		dir := GinkgoT().TempDir()
		job := func(name, text string) string {
			path := filepath.Join(dir, name)
			Expect(os.WriteFile(path, []byte(text), 0o644)).To(Succeed())
			return path
		}
		const common = "[job]\nioengine=rdma\nport=9999\nbs=64k\nsize=1m\niodepth=8\n"
		server := job("server", common+"rw=read\n")
		client := job("client", common+"rw=write\nverb=write\nhostname="+rack.Host("ms0").IPv4+"\n")
		ended := make(chan fixture.Result, 1)
		go func() {
			defer GinkgoRecover()
			ended <- rack.Run("exec", "ms0", "--", "timeout", "90", "fio", server)
		}()
		Eventually(func() int { return listeners(rack, "ms0") }).WithTimeout(20 * time.Second).Should(BeNumerically(">", 0))
		out := rack.Run("exec", "cn0", "--", "timeout", "60", "fio", client)
		Expect(out).To(fixture.HaveExited(0))
		Expect(out.Stdout).To(ContainSubstring("total=0,16,0,0"))
		var other fixture.Result
		Eventually(ended).WithTimeout(100 * time.Second).Should(Receive(&other))
		Expect(other).To(fixture.HaveExited(0))
	})
})

// need skips a spec if a program is not installed.
func need(program string) {
	GinkgoHelper()
	if _, err := exec.LookPath(program); err != nil {
		Skip(program + " is not installed: apt-get install qperf fio ucx-utils libfabric-bin")
	}
}
