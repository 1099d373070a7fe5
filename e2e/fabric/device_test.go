package fabric

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/e2e/fixture"
	"github.com/rdmalab/rdmalab/topo/nl"
)

// withDevice has a host at each of two leaves, and a device at the second.
const withDevice = `
fabric: {leaves: 2, spines: 1}
devices:
  - {port: %s, name: out, leaf: leaf1}
hosts:
  - {name: cn0, role: compute}
  - {name: ms0, role: memory, memory: 16MiB}
`

// ip runs the command ip.
func ip(args ...string) string {
	GinkgoHelper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "ip %s\n%s", strings.Join(args, " "), out)
	return string(out)
}

// pairs counts the pairs of interfaces that specs make.
var pairs int

// devicePair makes a pair of interfaces on this machine, which are down.
func devicePair(mtu int) (near, far string) {
	GinkgoHelper()
	pairs++
	name := func(end string) string { return fmt.Sprintf("d%s%d-%d", end, os.Getpid()%100000, pairs) }
	near, far = name("n"), name("f")
	ip("link", "add", near, "mtu", strconv.Itoa(mtu), "type", "veth", "peer", "name", far, "mtu", strconv.Itoa(mtu))
	DeferCleanup(func() { _ = exec.Command("ip", "link", "del", near).Run() }) // the spec may have removed it
	return near, far
}

// deviceState is what a port must leave as it was.
type deviceState struct {
	Flags       []string `json:"flags"`
	MTU         int      `json:"mtu"`
	Promiscuity int      `json:"promiscuity"`
	Allmulti    int      `json:"allmulti"`
	Address     string   `json:"address"`
	Master      string   `json:"master"`
	XDP         any      `json:"xdp"`
}

func stateOf(device string) deviceState {
	GinkgoHelper()
	var list []deviceState
	Expect(json.Unmarshal([]byte(ip("-d", "-j", "link", "show", device)), &list)).To(Succeed())
	Expect(list).To(HaveLen(1))
	return list[0]
}

// reached reports whether an address answers an echo request from a network namespace.
func reached(netns, address string) bool {
	err := nl.Do(netns, func() error {
		c, err := icmp.ListenPacket("ip4:icmp", "0.0.0.0")
		if err != nil {
			return err
		}
		defer c.Close()
		m := icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: os.Getpid() & 0xffff, Seq: 1, Data: []byte("device")}}
		b, err := m.Marshal(nil)
		if err != nil {
			return err
		}
		if _, err := c.WriteTo(b, &net.IPAddr{IP: net.ParseIP(address)}); err != nil {
			return err
		}
		if err := c.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			return err
		}
		for {
			answer := make([]byte, 1500)
			n, from, err := c.ReadFrom(answer)
			if err != nil {
				return err
			}
			if got, err := icmp.ParseMessage(1, answer[:n]); err == nil && got.Type == ipv4.ICMPTypeEchoReply && from.String() == address {
				return nil
			}
		}
	})
	return err == nil
}

var _ = Describe("a network device as a port of a leaf", func() {
	It("joins what is behind it, and is given back as it was", func() {
		near, far := devicePair(4200)
		netns := filepath.Join(GinkgoT().TempDir(), "far")
		Expect(nl.Create(netns)).To(Succeed())
		DeferCleanup(func() { Expect(nl.Remove(netns)).To(Succeed()) })
		ip("link", "set", far, "netns", netns)
		Expect(nl.Do(netns, func() error {
			ip("addr", "add", "10.77.0.200/24", "dev", far)
			ip("link", "set", far, "up")
			return nil
		})).To(Succeed())
		before := stateOf(near)
		rack := fixture.Up(fmt.Sprintf(withDevice, near))
		for _, address := range []string{"10.77.0.2", "10.77.0.3"} { // hosts of both leaves
			Eventually(func() bool { return reached(netns, address) }).Should(BeTrue(), address)
		}

		By("naming it in counters, captures, faults and the state of its link")
		Expect(rack.OK("status")).To(ContainSubstring("out: device %s as a port of leaf1, up", near))
		Expect(rack.OK("counters", "leaf1")).To(MatchRegexp(`(?m)^out +[1-9]`))
		file := filepath.Join(GinkgoT().TempDir(), "c.pcapng")
		stop := rack.Start("capture", "out", "-w", file)
		Eventually(file).Should(BeAnExistingFile())
		Eventually(func() bool { return reached(netns, "10.77.0.2") }).Should(BeTrue())
		Expect(stop()).To(fixture.HaveExited(0))
		Expect(os.ReadFile(file)).To(And(ContainSubstring("out up"), ContainSubstring("device")))
		rack.OK("inject", "blackhole", "--link", "out")
		Expect(reached(netns, "10.77.0.2")).To(BeFalse())
		rack.OK("heal")
		Eventually(func() bool { return reached(netns, "10.77.0.2") }).Should(BeTrue())
		rack.OK("link", "out", "down")
		Expect(reached(netns, "10.77.0.2")).To(BeFalse())
		rack.OK("crash", "leaf1")
		rack.OK("restart", "leaf1")
		Expect(reached(netns, "10.77.0.2")).To(BeFalse(), "a port that is cut stays cut")
		rack.OK("link", "out", "up")
		Eventually(func() bool { return reached(netns, "10.77.0.2") }).Should(BeTrue())

		By("refusing it to another rack")
		other := fixture.New(fmt.Sprintf(withDevice, near))
		res := other.Up()
		Expect(res.Code).NotTo(BeZero())
		Expect(res.Stderr).To(ContainSubstring("device %s: rack %q has it; `rdmalab down --rack %s` frees it", near, rack.Name, rack.Name))

		By("leaving nothing on it when its switch is killed")
		var s status
		rack.JSON(&s, "status")
		for _, n := range s.Switches {
			if n.Name == "leaf1" {
				Expect(unix.Kill(n.PID, unix.SIGKILL)).To(Succeed())
			}
		}
		Eventually(func() int { return stateOf(near).Promiscuity }).Should(BeZero())
		rack.OK("down")
		Expect(stateOf(near)).To(Equal(before))
	})

	It("joins two racks, whose hosts use RoCEv2 with each other", func() {
		if _, err := exec.LookPath("ib_write_bw"); err != nil {
			Skip("needs ib_write_bw, of the apt package perftest")
		}
		near, far := devicePair(4200)
		one := fixture.Up(fmt.Sprintf(withDevice, near))
		two := fixture.Up("seed: 2\nsubnet: 10.78.0.0/24\nsubnet6: fd00:78::/64\ndevices: [{port: " + far + ", name: out}]\n" +
			"hosts:\n  - {name: cn5, role: compute}\n  - {name: ms5, role: memory}\n")
		one.OK("exec", "cn0", "--", "ip", "route", "add", "10.78.0.0/24", "dev", "rack0")
		two.OK("exec", "ms5", "--", "ip", "route", "add", "10.77.0.0/24", "dev", "rack0")
		stop := two.Start("exec", "ms5", "--", "ib_write_bw", "-R", "-n", "100", "-F")
		Eventually(func() fixture.Result {
			return one.Run("exec", "cn0", "--", "ib_write_bw", "-R", "-n", "100", "-F", "10.78.0.3")
		}).Should(And(fixture.HaveExited(0), WithTransform(func(r fixture.Result) string { return r.Stdout }, ContainSubstring("65536      100"))))
		stop()
		Expect(carried(one, "leaf1")["out"]).To(BeNumerically(">", 10), "answers of the other rack")
		Expect(carried(two, "switch")["out"]).To(BeNumerically(">", 1000), "requests of the first rack")
	})

	It("refuses a device that cannot be one, in a line that says why", func() {
		near, far := devicePair(1500)
		bridge := fmt.Sprintf("br%d", os.Getpid()%100000)
		ip("link", "add", bridge, "type", "bridge")
		DeferCleanup(func() { ip("link", "del", bridge) })
		ip("link", "set", far, "master", bridge)
		for device, why := range map[string]string{
			"nosuch": "device nosuch: there is none of that name; there are lo, ",
			"lo":     "device lo: it is the loopback, which carries no frames",
			far:      "device " + far + ": it is a port of " + bridge + "; `ip link set " + far + " nomaster` frees it",
			near:     "device " + near + ": it carries packets of 1500 bytes, and this rack has some of 4200: write `mtu: 1500` in the rack file, or `ip link set " + near + " mtu 4200`",
		} {
			rack := fixture.New(fmt.Sprintf(withDevice, device))
			res := rack.Up()
			Expect(res.Code).NotTo(BeZero(), device)
			Expect(res.Stderr).To(ContainSubstring(why))
			Expect(strings.Count(strings.TrimSpace(res.Stderr), "\n")).To(BeZero(), res.Stderr)
			Expect(filepath.Join("/run/rdmalab", rack.Name)).NotTo(BeADirectory())
		}
		out := ip("-4", "route", "show", "default")
		fields := strings.Fields(out)
		if len(fields) < 5 || fields[3] != "dev" {
			return // this machine has no default route
		}
		rack := fixture.New(strings.Replace(fmt.Sprintf(withDevice, fields[4]), "fabric:", "pathMtu: 1024\nfabric:", 1))
		Expect(rack.Up().Stderr).To(ContainSubstring("device %s: this machine's default route goes out of it", fields[4]))
	})
})
