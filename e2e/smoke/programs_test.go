package smoke

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// hostObjects is what the daemon of a host reports of its NIC and of the programs that use it.
type hostObjects struct {
	Objects  map[string]int `json:"objects"`
	Programs []struct {
		PID    int    `json:"pid"`
		Name   string `json:"name"`
		QPs    int    `json:"qps"`
		MRs    int    `json:"mrs"`
		Posted uint64 `json:"posted"`
	} `json:"programs"`
}

// objectsOf asks the daemon of a host.
func objectsOf(rack *fixture.Rack, host string) hostObjects {
	GinkgoHelper()
	var s struct {
		Hosts []struct {
			Name   string      `json:"name"`
			Daemon hostObjects `json:"daemon"`
		} `json:"hosts"`
	}
	rack.JSON(&s, "status")
	for _, h := range s.Hosts {
		if h.Name == host {
			return h.Daemon
		}
	}
	Fail("no host " + host)
	return hostObjects{}
}

// build builds a program of the module in a folder, as make build does, in a workspace with this
// repository: the go command compiles every package once more for a module that is replaced, as this
// one is for the example client. The test of the examples (compose/examples) holds that its go.mod
// is complete.
func build(program, dir, pkg string) {
	GinkgoHelper()
	work := filepath.Join(GinkgoT().TempDir(), "go.work")
	root, err := filepath.Abs("../..")
	Expect(err).NotTo(HaveOccurred())
	text := fmt.Sprintf("go 1.26.0\n\nuse (\n\t%q\n\t%q\n)\n", root, filepath.Join(root, "compose/examples/goclient"))
	Expect(os.WriteFile(work, []byte(text), 0o600)).To(Succeed())
	cmd := exec.Command("go", "build", "-o", program, pkg)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath", "GOWORK="+work)
	out, err := cmd.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "go build: %s", out)
}

var _ = Describe("a program of its own on a host", Ordered, func() {
	var rack *fixture.Rack
	var program, memory string
	BeforeAll(func() {
		program = filepath.Join(GinkgoT().TempDir(), "example")
		build(program, "", "github.com/rdmalab/rdmalab/softrnic/ipc/example")
		rack = fixture.Up(fixture.Small)
		memory = rack.Host("ms0").IPv4
	})

	It("uses the NIC of the host's daemon, and finds no wrong byte", func() {
		out := rack.OK("exec", "cn0", "--", program, memory, "verify")
		for _, op := range []string{"WRITE", "READ", "CAS", "FAA"} {
			Expect(out).To(MatchRegexp(op + ` +\S+ +ok`))
		}
		out = rack.OK("exec", "cn1", "--", program, memory, "soak", "100")
		Expect(out).To(ContainSubstring("verified"))
		Expect(objectsOf(rack, "cn0").Programs).To(BeEmpty())
	})

	It("runs as in the example of 30 lines", func() {
		hello := filepath.Join(GinkgoT().TempDir(), "hello")
		build(hello, "../../compose/examples/goclient", "./hello")
		for i, host := range []string{"cn0", "cn1", "cn0"} {
			Expect(rack.OK("exec", host, "--", hello, memory)).To(Equal(fmt.Sprintf("%s has \"hello, rack\"; %d were here before\n", memory, i)))
		}
		Expect(objectsOf(rack, "cn0").Programs).To(BeEmpty())
	})

	It("is told why a WRITE behind the end of a region failed", func() {
		beyond := filepath.Join(GinkgoT().TempDir(), "beyond")
		build(beyond, "../../compose/examples/goclient", "./beyond")
		Expect(rack.OK("exec", "cn0", "--", beyond, memory)).To(Equal("wr_id 100: success, vendor_err 0x0\n" +
			"wr_id 101: remote access error, vendor_err 0x22\nwr_id 102: Work Request Flushed Error, vendor_err 0x61\n"))
		Expect(rack.OK("why", "cn0")).To(MatchRegexp(`WRITE 2 \(wr_id 0x65\): 8 bytes .* failed .*: remote access error, because R_Key .* of region \d+ covers .*, and the request asks for 8 bytes`))
	})

	It("uses any store that is up on the rack, and says how to start one that is not", func() {
		greet := filepath.Join(GinkgoT().TempDir(), "greet")
		build(greet, "../../compose/examples/goclient", "./greet")
		rack := fixture.Up("name: stores\nhosts: [{name: md0, role: metadata}, {name: \"ms[0-1]\", role: memory, memory: 16MiB}, {name: \"cn[0-1]\", role: compute}]")
		for _, store := range []string{"template", "fusee", "sherman", "clover"} {
			no := rack.Run("exec", "cn0", "--", greet, store)
			Expect(no).To(fixture.HaveExited(1))
			Expect(no.Stderr).To(ContainSubstring("`rdmalab %s start`", store))
			start := []string{store, "start", "--fresh"} // the memory has the former store
			if store == "sherman" {
				start = append(start, "--value", "40") // its values have one length, 8 bytes by default
			}
			rack.OK(start...)
			for _, host := range []string{"cn0", "cn1", "cn0"} {
				Expect(rack.OK("exec", host, "--", greet, store)).To(Equal(store + " has \"hello, rack\"\n"))
			}
			rack.OK(store, "stop")
		}
		Expect(objectsOf(rack, "cn0").Programs).To(BeEmpty())
	})

	It("leaves nothing on the NIC when it is killed during its WRITEs", func() {
		before := objectsOf(rack, "cn0").Objects
		ended := make(chan fixture.Result, 1)
		go func() {
			defer GinkgoRecover()
			ended <- rack.Run("exec", "cn0", "--", program, memory, "write_bw", "100000000")
		}()
		var during hostObjects
		Eventually(func() uint64 {
			if during = objectsOf(rack, "cn0"); len(during.Programs) != 1 {
				return 0
			}
			return during.Programs[0].Posted
		}, fixture.Patience, "20ms").Should(BeNumerically(">", 100))
		Expect(during.Programs[0].Name).To(Equal("example"))
		Expect(during.Programs[0].QPs).To(Equal(1))
		Expect(during.Objects["qps"]).To(Equal(before["qps"] + 1))
		Expect(rack.OK("status")).To(ContainSubstring("example"))
		rack.OK("exec", "cn0", "--", "kill", "-9", strconv.Itoa(during.Programs[0].PID))
		var res fixture.Result
		Eventually(ended, fixture.Patience).Should(Receive(&res))
		Expect(res).To(fixture.HaveExited(128 + 9))
		Eventually(func() string {
			o := objectsOf(rack, "cn0")
			return fmt.Sprint(len(o.Programs), o.Objects)
		}, fixture.Patience, "20ms").Should(Equal(fmt.Sprint(0, before)))
		rack.OK("exec", "cn0", "--", program, memory, "verify")
		rack.OK("perf", "verify", "--from", "cn0", "--to", "ms0")
	})
})
