package switch_test

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// cas runs n CAS, one after the other.
func cas(rack *fixture.Rack, n string) {
	GinkgoHelper()
	rack.Perf("atomic_bw", "--type", "cas", "--iters", n, "--tx-depth", "1", "--verify")
}

// line is a packet of a dump: the link with its direction, the packet, the comment.
type line struct{ link, packet, comment string }

func dump(file string) (lines []line) {
	GinkgoHelper()
	out := fixture.Run("dump", file)
	Expect(out).To(fixture.HaveExited(0))
	for text := range strings.Lines(out.Stdout) {
		_, text, _ = strings.Cut(strings.TrimSpace(text), " [")
		link, text, _ := strings.Cut(text, "] ")
		packet, comment, _ := strings.Cut(text, " # ")
		lines = append(lines, line{link, packet, comment})
	}
	return lines
}

var _ = Describe("the switch program swordbox", Ordered, func() {
	var rack *fixture.Rack

	BeforeAll(func() { rack = fixture.Up(rackOf(replace)) })

	It("shows a rewritten packet on both links of a capture, and each names the other", func() {
		file := filepath.Join(GinkgoT().TempDir(), "cas.pcapng")
		stop := rack.Start("capture", "cn0", "ms0", "-w", file)
		Eventually(func() string {
			cas(rack, "6")
			return fixture.Run("dump", file).Stdout
		}, fixture.Patience, "100ms").Should(ContainSubstring("CAS→WRITE conn"))
		Expect(stop()).To(fixture.HaveExited(0))

		pairs := map[string]int{}
		lines := dump(file)
		for i, in := range lines {
			Expect(in.packet).NotTo(ContainSubstring("icrc=bad"))
			for _, kind := range []struct{ in, what, out, from, to, opcode string }{
				{"cn0 up", "CAS→WRITE conn ", "ms0 down", ", to ms0", ", from cn0", "RC_WRITE_ONLY"},
				{"ms0 up", "ACK→ATOMIC_ACK conn ", "cn0 down", "", "", "RC_ATOMIC_ACK"},
			} {
				if in.link != kind.in || !strings.HasPrefix(in.comment, kind.what) {
					continue
				}
				want := strings.TrimSuffix(in.comment, kind.from) + kind.to
				found := false
				for _, out := range lines[i+1:] {
					found = found || out.link == kind.out && out.comment == want && strings.Contains(out.packet, kind.opcode)
				}
				Expect(found).To(BeTrue(), "on %s nothing says %q", kind.out, want)
				pairs[kind.what]++
			}
		}
		AddReportEntry("pairs", pairs)
		Expect(pairs).To(HaveLen(2))
		if _, err := exec.LookPath("tshark"); err != nil {
			Skip("tshark is not installed: no independent reader (apt-get install tshark)")
		}
		out, err := exec.Command("tshark", "-r", file, "-Y", `frame.comment contains "conn" && infiniband.bth.opcode == 10`, "-T", "fields", "-e", "frame.comment").Output()
		Expect(err).NotTo(HaveOccurred())
		Expect(string(out)).To(MatchRegexp(`CAS→WRITE conn \d+ psn \d+→\d+ value (0x[0-9a-f]+|\d+), was (0x[0-9a-f]+|\d+), from cn0`))
	})

	It("says what it is, what it counts and what it would take", func() {
		Expect(rack.OK("switch", "program")).To(ContainSubstring("swordbox"))
		Expect(rack.OK("switch", "tables")).To(MatchRegexp(`words +[1-9]`))
		Expect(rack.SwitchCounters()["hardened"]["replaced"]).NotTo(BeZero())
		Expect(rack.OK("switch", "budget")).To(ContainSubstring("stages"))
		out := rack.OK("switch", "connections", "--all")
		Expect(out).To(MatchRegexp(`ms0/0 +up .*switch`))
		Expect(out).To(MatchRegexp(`ms0/1 +up .*switch`))
		Expect(out).To(MatchRegexp(`cn0 .* ms0 `))
	})

	It("traces rewrites live", func() {
		// A trace that begins when the CAS have passed sees other packets alone, like a DREQ.
		Eventually(func(g Gomega) {
			stop := rack.Start("switch", "trace", "cn0", "--dir", "up", "-o", "json", "--count", "3", "--for", "20s")
			cas(rack, "5")
			res := stop()
			var comments []string
			for dec := json.NewDecoder(strings.NewReader(res.Stdout)); dec.More(); {
				var packet struct {
					Comment string `json:"comment"`
				}
				g.Expect(dec.Decode(&packet)).To(Succeed(), res.String())
				comments = append(comments, packet.Comment)
			}
			g.Expect(comments).To(ContainElement(ContainSubstring("CAS")), res.String())
		}, fixture.Patience).Should(Succeed())
	})

	It("accepts valid rules while it runs, and refuses others", func() {
		for rule, why := range map[string]string{
			"server=ms99 action=atomics":               "ms99",
			"server=ms0 action=fly":                    "fly",
			"server=ms0":                               "action",
			"server=ms0 action=move range=0x2000-0x10": "range",
		} {
			res := rack.Run(append([]string{"switch", "rules", "add"}, strings.Fields(rule)...)...)
			Expect(res.Code).NotTo(BeZero(), rule)
			Expect(res.Stderr).To(ContainSubstring(why), rule)
		}
		before := rack.SwitchCounters()["hardened"]["moved"]
		rack.OK("switch", "rules", "remove", "r1")
		cas(rack, "10")
		Expect(rack.SwitchCounters()["hardened"]["moved"]).To(Equal(before))
		rack.OK("switch", "rules", "add", "id=again", "server=ms0", "action=atomics", "shards=2")
		Expect(rack.OK("switch", "rules")).To(MatchRegexp(`again +ms0 +atomics`))
		Eventually(func() uint64 {
			cas(rack, "10")
			return rack.SwitchCounters()["hardened"]["moved"]
		}, fixture.Patience, "100ms").Should(BeNumerically(">", before))
	})
})
