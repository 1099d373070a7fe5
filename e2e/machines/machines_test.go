package machines

import (
	"io"
	"os"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"

	"github.com/rdmalab/rdmalab/e2e/fixture"
	"github.com/rdmalab/rdmalab/softrnic/capture/pcapng"
)

// three is a rack of three machines with a few hosts.
const three = `
name: mcthree
machines:
  - {name: m1, ssh: ssh://root@10.213.0.1}
  - {name: m2, ssh: ssh://root@10.213.0.2}
  - {name: m3, ssh: ssh://root@10.213.0.3}
hosts:
  - {name: "cn[0-2]", role: compute}
  - {name: "ms[0-2]", role: memory, memory: 16MiB}
`

var _ = Describe("a rack on three machines", Ordered, func() {
	var l *lab
	var file string
	BeforeAll(func() {
		l = newLab(3)
		file = l.file("three.yaml", three)
	})
	rack := func(args ...string) string {
		GinkgoHelper()
		return l.ok(append([]string{"--rack", "mcthree"}, args...)...)
	}

	It("shows its plan, and does nothing", func() {
		Expect(l.ok("up", "-f", file, "--plan")).To(And(
			MatchRegexp(`m2 +ssh://root@10.213.0.2 +leaf1 +cn1 ms1`),
			MatchRegexp(`leaf0-leaf2 +m1 udp 10.213.0.1:24792 - m3 udp 10.213.0.3:24792`)))
		for _, m := range l.machines {
			Expect(m.left()).To(BeEmpty())
		}
	})

	It("refuses a machine that the rack file has twice", func() {
		config := l.client.dir + "/ssh_config"
		text, err := os.ReadFile(config)
		Expect(err).NotTo(HaveOccurred())
		write(config, "Host second\nHostName "+l.machines["m2"].address+"\nHost *\n"+string(text), 0o600)
		twice := l.file("twice.yaml", strings.ReplaceAll(three, "ssh://root@10.213.0.3", "ssh://second, address: 10.213.0.3"))
		for _, flag := range []string{"--no-verify", "--plan"} {
			Expect(l.rdmalab("up", "-f", twice, flag)).To(And(fixture.HaveExited(1), said("machines m2 (ssh://root@10.213.0.2) and m3 (ssh://second) are one for ssh, 10.213.0.2 port 22")))
		}
		Expect(l.client.left()).To(BeEmpty())
		write(config, string(text), 0o600)
	})

	It("comes up, and is up already", func() {
		rack("up", "-f", file, "--no-verify")
		Expect(rack("up", "-f", file, "--no-verify")).To(ContainSubstring("is up already"))
		Expect(rack("status")).To(And(MatchRegexp(`leaf1 +switch +up .* m2\n`), MatchRegexp(`ms2 +memory +up .* m3\n`)))
		Expect(l.machines["m2"].on("rdmalab", "--rack", "mcthree", "slice", "status").Stdout).To(And(ContainSubstring("machine m2"), ContainSubstring("cn1"), Not(ContainSubstring("cn0"))))
	})

	It("runs programs, crashes hosts, cuts links, injects faults and shows logs on the machine that has them", func() {
		Expect(rack("exec", "cn1", "--", "sh", "-c", "hostname; echo it\\'s")).To(Equal("cn1\nit's\n"))
		Expect(l.rdmalab("--rack", "mcthree", "exec", "cn2", "--", "sh", "-c", "exit 7")).To(fixture.HaveExited(7))
		Expect(rack("inject", "loss", "5%", "--link", "cn1,cn2")).To(And(ContainSubstring("leaf1-f1"), ContainSubstring("leaf2-f1")))
		Expect(rack("faults")).To(And(ContainSubstring("--link cn1"), ContainSubstring("--link cn2")))
		Expect(rack("heal")).To(Equal("healed 2 active faults\n"))
		rack("crash", "ms2")
		Expect(rack("status")).To(MatchRegexp(`ms2 +memory +crashed`))
		rack("restart", "ms2")
		rack("link", "cn0", "down")
		Expect(rack("status")).To(MatchRegexp(`cn0 .* down +\d+ +m1`))
		rack("link", "cn0", "up")
		Expect(rack("logs")).To(And(ContainSubstring("name=leaf2 rack=mcthree"), ContainSubstring("name=leaf0 rack=mcthree")))
		Expect(rack("logs", "leaf1")).To(ContainSubstring("name=leaf1 rack=mcthree"))
	})

	It("refuses another up, and leaves the rack", func() {
		other := l.file("other.yaml", strings.ReplaceAll(three, "[0-2]", "[0-1]"))
		Expect(l.rdmalab("up", "-f", other)).To(And(fixture.HaveExited(1), said("from another rack file")))
		Expect(l.rdmalab("--rack", "mcthree", "apply", "-f", other)).To(And(fixture.HaveExited(1), said("is on several machines")))
		// The same, from a client that has not made the rack.
		Expect(l.client.on("mv", "/run/rdmalab/mcthree.client", "/run/kept")).To(fixture.HaveExited(0))
		r := l.rdmalab("up", "-f", file)
		Expect(r).To(And(fixture.HaveExited(1), said("machine m3: "), said("another secret")))
		Expect(l.client.on("ls", "/run/rdmalab").Code).NotTo(BeZero())
		Expect(l.client.on("sh", "-c", "mkdir -p /run/rdmalab && mv /run/kept /run/rdmalab/mcthree.client")).To(fixture.HaveExited(0))
		Expect(rack("up", "-f", file, "--no-verify")).To(ContainSubstring("is up already"))
	})

	It("goes on when a connection of ssh is killed", func() {
		Expect(l.client.on("sh", "-c", "for p in /proc/[0-9]*; do grep -qa '^ssh: .*/ssh/m2 ' $p/cmdline 2>/dev/null && kill -9 ${p#/proc/}; done; true")).To(fixture.HaveExited(0))
		Expect(rack("exec", "cn1", "--", "hostname")).To(Equal("cn1\n"))
		Expect(rack("faults", "-o", "json")).To(Equal("[]\n"))
	})

	It("loses the hosts of a machine that dies, and takes it in again", func() {
		m := l.machines["m3"]
		l.kill(m)
		Expect(rack("status")).To(And(MatchRegexp(`cn2 +compute +lost .* m3\n`), ContainSubstring("machine m3 does not answer"), MatchRegexp(`cn1 +compute +up`)))
		Expect(rack("exec", "cn1", "--", "hostname")).To(Equal("cn1\n"))
		Expect(rack("exec", "cn1", "--", "hostname")).To(Equal("cn1\n"))
		l.start(m)
		rack("up", "-f", file)
		Expect(rack("status", "-o", "jsonpath=$.state")).To(ContainSubstring("up"))
		rack("perf", "verify", "--from", "cn0", "--to", "ms2")
		rack("exec", "cn2", "--", "true")
	})

	It("is cut in two and heals", func() {
		rack("inject", "delay", "1ms", "--link", "leaf1-leaf2")
		rack("link", "leaf0-leaf1", "down")
		Eventually(func() string { return rack("status") }).Should(ContainSubstring("2 of 3 trunks"))
		rack("perf", "verify", "--from", "cn0", "--to", "ms1") // by way of leaf2
		rack("link", "leaf0-leaf1", "up")
		rack("heal")
		Eventually(func() string { return rack("status") }).Should(ContainSubstring("3 of 3 trunks"))

		// The network between m1 and m2, and not that to the client.
		m := l.machines["m1"]
		Expect(m.on("ip", "route", "add", "blackhole", l.machines["m2"].address)).To(fixture.HaveExited(0))
		Eventually(func() string { return rack("status") }).Should(ContainSubstring("2 of 3 trunks"))
		rack("perf", "verify", "--from", "cn0", "--to", "ms1")
		Expect(m.on("ip", "route", "del", "blackhole", l.machines["m2"].address)).To(fixture.HaveExited(0))
		Eventually(func() string { return rack("status") }).Should(ContainSubstring("3 of 3 trunks"))
		rack("perf", "verify", "--from", "cn0", "--to", "ms1")
	})

	It("serves metrics of all machines, and answers ibv_rc_pingpong on each", func() {
		text := l.client.on("sh", "-c", `rdmalab --rack mcthree metrics --listen 127.0.0.1:0 >/run/metrics & p=$!
until grep -q http /run/metrics; do kill -0 $p || exit 1; done
url=$(grep -o 'http.*' /run/metrics); bash -c 'h=${1#http://}; a=${h%/metrics}; exec 3<>/dev/tcp/${a%:*}/${a#*:}; printf "GET /metrics HTTP/1.0\r\n\r\n" >&3; cat <&3' - "$url"; kill $p`).Stdout
		Expect(text).To(And(
			ContainSubstring(`rdmalab_node_up{node="leaf2",rack="mcthree",role="switch"} 1`),
			ContainSubstring(`rdmalab_node_up{node="cn1",rack="mcthree",role="compute"} 1`),
			MatchRegexp(`rdmalab_nic_sent_packets_total{host="cn2",rack="mcthree"} \d`),
			MatchRegexp(`rdmalab_trunk_received_total{rack="mcthree",switch="leaf2",trunk="leaf1-leaf2"} [1-9]`),
			ContainSubstring(`rdmalab_trunk_up{rack="mcthree",trunk="leaf0-leaf1"} 1`)))
		ended := make(chan struct{})
		go func() {
			defer GinkgoRecover()
			defer close(ended)
			rack("pingpong", "rc", "--on", "ms1")
		}()
		Expect(rack("pingpong", "rc", "ms1", "--on", "cn0")).To(ContainSubstring("8192000 bytes in 1000 iterations"))
		Eventually(ended).Should(BeClosed())
		Expect(l.rdmalab("--rack", "mcthree", "web")).To(And(fixture.HaveExited(1), said("rdmalab metrics")))
	})

	It("captures links of several machines in one file, by one clock", func() {
		file := l.dir + "/all.pcapng"
		ended := make(chan struct{})
		var r fixture.Result
		go func() {
			defer GinkgoRecover()
			defer close(ended)
			r = l.rdmalab("--rack", "mcthree", "capture", "-w", file, "--for", "3s")
		}()
		Eventually(func() bool {
			rack("perf", "verify", "--from", "cn0", "--to", "ms1")
			select {
			case <-ended:
				return true
			default:
				return false
			}
		}).Should(BeTrue())
		Expect(r).To(fixture.HaveExited(0))
		f, err := os.Open(file)
		Expect(err).NotTo(HaveOccurred())
		defer f.Close()
		in, err := pcapng.NewReader(f)
		Expect(err).NotTo(HaveOccurred())
		first := map[string]int64{} // times of the first RoCEv2 packets
		last, packets, late := int64(0), 0, 0
		for {
			var p pcapng.Packet
			if err = in.Next(&p); err != nil {
				break
			}
			packets++
			if p.Time < last {
				late++
			}
			last = p.Time
			if len(p.Data) > 38 && p.Data[23] == 17 && p.Data[36] == 0x12 && p.Data[37] == 0xb7 && first[p.Name] == 0 {
				first[p.Name] = p.Time
			}
		}
		Expect(err).To(Equal(io.EOF))
		Expect(late).To(BeZero(), "of %d packets", packets)
		way := []string{"cn0@m1 up", "leaf0-leaf1@m1 down", "leaf0-leaf1@m2 up", "ms1@m2 down"}
		for i, name := range way {
			Expect(first).To(HaveKey(name))
			if i > 0 {
				Expect(first[name]).To(BeNumerically(">", first[way[i-1]]-int64(time.Millisecond)), name) // the clocks are compared, not equal
			}
		}
		Expect(l.rdmalab("--rack", "mcthree", "capture", "cn0", "ms1", "--count", "1", "--for", "100ms", "-w", file)).To(fixture.HaveExited(0))
	})

	It("fails a strict measurement if the network loses something", func() {
		rack("down")
		strict := l.file("strict.yaml", three+"fabric: {leaves: 3, spines: 0, strict: true}\n")
		rack("up", "-f", strict, "--no-verify")
		measure := func() fixture.Result {
			GinkgoHelper()
			return l.rdmalab("--rack", "mcthree", "perf", "write_bw", "--from", "cn0", "--to", "ms1", "--size", "64KiB", "--iters", "50", "--tx-depth", "2", "-q")
		}
		Expect(measure()).To(fixture.HaveExited(0))
		Expect(rack("status")).NotTo(ContainSubstring("strict:"))
		rack("inject", "loss", "2%", "--link", "leaf0-leaf1", "--class", "roce")
		Expect(measure()).To(fixture.HaveExited(0), "an injected fault is not the network's")
		rack("heal")
		port := l.machines["m2"].port
		l.onLAN("tc", "qdisc", "add", "dev", port, "root", "tbf", "rate", "100mbit", "burst", "20k", "limit", "100k") // room for one message, and not for two
		r := measure()
		l.onLAN("tc", "qdisc", "del", "dev", port, "root")
		Expect(r).To(And(fixture.HaveExited(1), said("strict: the network between the switches was not whole"), said("on the way to leaf1")))
		Expect(r.Stdout).To(ContainSubstring("RDMA_Write BW Test"))
		Expect(rack("status")).To(MatchRegexp(`leaf0-leaf1 at leaf1: strict: datagrams lost in the network, or late: [1-9]`))
		rack("down")
		rack("up", "-f", file, "--no-verify")
	})

	It("crosses a network that lets no UDP pass", func() {
		rack("down")
		for _, m := range l.machines {
			Expect(m.on("ip", "rule", "add", "ipproto", "udp", "prohibit")).To(fixture.HaveExited(0))
		}
		Expect(l.rdmalab("up", "-f", file)).To(And(fixture.HaveExited(1), said("look whether a firewall drops them (`carrier: tcp` in fabric goes without UDP)")))
		tcp := l.file("tcp.yaml", three+"fabric: {leaves: 3, spines: 0, carrier: tcp}\n")
		rack("down")
		Expect(l.ok("up", "-f", tcp, "--plan")).To(MatchRegexp(`leaf0-leaf2 +m1 tcp 10.213.0.1:24792 - m3 tcp 10.213.0.3:24792`))
		rack("up", "-f", tcp)
		measured := func(to string) {
			GinkgoHelper()
			Expect(rack("perf", "write_bw", "--from", "cn0", "--to", to, "--size", "64KiB", "--iters", "200", "--verify", "-q")).To(ContainSubstring("verified: 13107200 bytes"))
		}
		measured("ms1")
		// m1 connects to neither, m3 to both: each end of a trunk is started again.
		for _, leaf := range []string{"leaf0", "leaf2"} {
			rack("crash", leaf)
			rack("restart", leaf)
			Eventually(func() string { return rack("status") }).Should(ContainSubstring("3 of 3 trunks"))
			measured("ms2")
		}
		m := l.machines["m3"]
		l.kill(m)
		l.start(m)
		Expect(m.on("ip", "rule", "add", "ipproto", "udp", "prohibit")).To(fixture.HaveExited(0))
		rack("up", "-f", tcp)
		measured("ms2")
		rack("down")
		for _, m := range l.machines {
			Expect(m.on("ip", "rule", "del", "ipproto", "udp", "prohibit")).To(fixture.HaveExited(0))
		}
		rack("up", "-f", file, "--no-verify")
	})

	It("leaves a cut trunk and the faults on trunks as they are when their switch is started again", func() {
		rack("link", "leaf0-leaf1", "down")
		rack("inject", "delay", "1ms", "--link", "leaf0-leaf2")
		rack("restart", "leaf0")
		Expect(rack("counters", "leaf0")).To(ContainSubstring("leaf0-leaf1: off"))
		Expect(rack("status")).To(ContainSubstring("leaf0-leaf1: down"))
		Expect(rack("faults")).To(ContainSubstring("--link leaf0-leaf2"))
		rack("crash", "leaf0")
		rack("link", "leaf0-leaf1", "up")
		rack("restart", "leaf0")
		Expect(rack("heal")).To(Equal("healed 1 active fault\n"))
		Eventually(func() string { return rack("status") }).Should(ContainSubstring("3 of 3 trunks"))
	})

	It("shows and collects all of it", func() {
		Expect(rack("top", "--once")).To(And(ContainSubstring("cn0"), ContainSubstring("ms2")))
		dir := l.dir + "/bundle"
		rack("bundle", dir)
		for _, name := range []string{"log/m1.log", "log/m3.log", "status.json"} {
			Expect(dir + "/" + name).To(BeARegularFile())
		}
		rack("qps", "cn1")
		rack("counters", "cn2")
		rack("partition", "cn0,ms0", "cn1,ms1")
		Expect(l.rdmalab("--rack", "mcthree", "perf", "verify", "--from", "cn0", "--to", "ms1")).To(fixture.HaveExited(1))
		rack("heal")
		rack("perf", "verify", "--from", "cn0", "--to", "ms1")
		rack("hang", "ms1")
		Expect(rack("status")).To(MatchRegexp(`ms1 +memory +hung`))
		rack("resume", "ms1")
		rack("crash", "leaf1")
		Expect(rack("status")).To(MatchRegexp(`leaf1 +switch +crashed`))
		rack("faults")
		rack("restart", "leaf1")
		Eventually(func() string { return rack("status") }).Should(ContainSubstring("3 of 3 trunks"))
	})

	It("goes away, and leaves nothing", func() {
		m := l.machines["m3"]
		l.kill(m)
		Expect(l.rdmalab("--rack", "mcthree", "down")).To(And(fixture.HaveExited(1), said("down --rack mcthree --lost")))
		Expect(l.ok("up", "--rack", "mcalone", "--no-verify")).To(ContainSubstring("is up"))
		Expect(l.client.on("sh", "-c", "echo n | script -qec 'rdmalab down --all' /dev/null").Stdout).To(And(
			ContainSubstring("removes 2 racks: mcthree on m1 m2 m3, mcalone"), ContainSubstring("nothing was removed")))
		Expect(l.rdmalab("down", "--all", "--yes")).To(And(fixture.HaveExited(1), said(`rack "mcthree": machine m3 does not answer`)))
		Expect(l.client.left()).To(ConsistOf("mcthree.client", "mcthree.client.lock"))
		Expect(l.machines["m1"].left()).To(BeEmpty())
		l.start(m)
		Expect(l.ok("down", "--all", "--yes")).To(Equal("rack \"mcthree\" is down\n"))
		Expect(l.ok("down", "--all", "--yes")).To(Equal("no rack is up\n"))
		for _, m := range l.machines {
			Expect(m.left()).To(BeEmpty(), m.name)
		}
		Expect(l.client.left()).To(BeEmpty())
		Expect(l.client.on("pgrep", "ssh").Code).To(Equal(1), "a connection is left")
	})

	It("leaves nothing behind if a machine refuses its slice", func() {
		m := l.machines["m2"]
		refused := func(text string) {
			GinkgoHelper()
			Expect(l.rdmalab("up", "-f", file)).To(And(fixture.HaveExited(1), said(text)))
			for _, m := range l.machines {
				Expect(m.left()).To(BeEmpty(), m.name)
			}
			Expect(l.client.left()).To(BeEmpty())
		}
		By("without the program")
		Expect(os.Rename(m.dir+"/bin/rdmalab", m.dir+"/bin/away")).To(Succeed())
		refused("machine m2 has no rdmalab in the PATH of its sshd")
		By("with another version")
		// The version comes first in a slice; the one here gets another.
		write(m.dir+"/bin/rdmalab", "#!/bin/sh\n[ \"$3 $4\" = 'slice apply' ] && sed 's/\"version\":\"[^\"]*\"/\"version\":\"v9\"/' | exec \"${0%rdmalab}\"away \"$@\"\nexec \"${0%rdmalab}\"away \"$@\"\n", 0o755)
		refused(`machine m2: another version of rdmalab: the client has "v9"`)
		Expect(os.Rename(m.dir+"/bin/away", m.dir+"/bin/rdmalab")).To(Succeed())
		By("with a rack of that name of its own")
		Expect(m.on("rdmalab", "up", "--rack", "mcthree", "--no-verify")).To(fixture.HaveExited(0))
		Expect(l.rdmalab("up", "-f", file)).To(And(fixture.HaveExited(1), said("another secret")))
		Expect(m.on("rdmalab", "--rack", "mcthree", "status")).To(fixture.HaveExited(0))
		Expect(m.on("rdmalab", "down", "--rack", "mcthree")).To(fixture.HaveExited(0))
		By("without a key")
		Expect(os.Rename(l.dir+"/authorized", l.dir+"/away")).To(Succeed())
		refused("ssh-copy-id")
		Expect(os.Rename(l.dir+"/away", l.dir+"/authorized")).To(Succeed())
		By("with another host key")
		known, err := os.ReadFile(l.dir + "/known")
		Expect(err).NotTo(HaveOccurred())
		write(l.dir+"/known", "", 0o600)
		refused("host key is unknown")
		write(l.dir+"/known", string(known), 0o600)
		By("when it is off")
		l.kill(m)
		refused("machine m2 does not answer")
		l.start(m)
	})
})

// said matches a result whose error output has a text.
func said(text string) types.GomegaMatcher {
	return WithTransform(func(r fixture.Result) string { return r.Stderr }, ContainSubstring(text))
}
