package smoke

import (
	"encoding/json"
	"os"
	"regexp"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// Each exercise is checked with wrong answers or work, and with right ones. The exercise about a switch program is solved by the page
// docs/guide/exercises.md, with a binary of its own.
var _ = Describe("rdmalab exercise", Ordered, func() {
	var rack *fixture.Rack
	BeforeAll(func() {
		rack = fixture.Up("hosts:\n  - {name: cn0, role: compute}\n  - {name: cn1, role: compute}\n  - {name: \"ms[0-1]\", role: memory, memory: 16MiB}\n")
	})

	prepare := func(name string, flags ...string) string {
		GinkgoHelper()
		return rack.OK(append([]string{"exercise", name}, flags...)...)
	}
	// check checks an exercise with answers, and returns what it prints.
	check := func(status int, name string, answers ...string) string {
		GinkgoHelper()
		args := []string{"exercise", name, "--check"}
		for _, a := range answers {
			args = append(args, "--answer", a)
		}
		s := rack.Run(args...)
		Expect(s).To(fixture.HaveExited(status))
		if status == 0 {
			Expect(s.Stdout).To(And(HaveSuffix("solved\n"), Not(ContainSubstring("missing"))))
		} else {
			Expect(s.Stdout + s.Stderr).NotTo(ContainSubstring("solved"))
		}
		return s.Stdout
	}

	It("is prepared before it is checked", func() {
		s := rack.Run("exercise", "lost-packet", "--check")
		Expect(s).To(fixture.HaveExited(1))
		Expect(s.Stderr).To(ContainSubstring("run `rdmalab exercise lost-packet` first"))
	})

	It("has a lost packet, of which the ladder tells", func() {
		file := regexp.MustCompile(`/\S+/lost-packet\.pcapng`).FindString(prepare("lost-packet", "--seed", "7"))
		Expect(file).To(BeAnExistingFile())
		Expect(rack.OK("why", file)).To(And(MatchRegexp(`(?s)Packet \d+ of 16 \(#\d+, PSN \+\d+\) was lost: fault f1 \(loss\): dropped.*cn0 sent \d+ packets again`),
			HaveSuffix("1 healed, 0 failed, 0 without an end\n")))
		lines := strings.Split(rack.OK("dump", "--ladder", file), "\n")
		var lost, noticed string
		again := 0
		for _, line := range lines {
			f := strings.Fields(line)
			switch {
			case strings.Contains(line, "---x"):
				lost = regexp.MustCompile(`\+(\d+) RC_`).FindStringSubmatch(line)[1]
			case strings.Contains(line, "NAK_PSN_SEQ"):
				noticed = f[0]
			case strings.Contains(line, "again:"):
				n := 1
				if m := regexp.MustCompile(`, (\d+) packets`).FindStringSubmatch(line); m != nil {
					n, _ = strconv.Atoi(m[1])
				}
				again += n
			}
		}
		Expect(check(1, "lost-packet")).To(ContainSubstring("lost: no answer"))
		wrong := check(1, "lost-packet", "lost="+lost, "noticed=1", "again=x")
		Expect(wrong).To(And(ContainSubstring("ok       lost="), ContainSubstring("noticed=1 is wrong"), ContainSubstring("again=x is no number")))
		check(0, "lost-packet", "lost="+lost, "noticed="+noticed, "again="+strconv.Itoa(again))
		Expect(rack.Faults()).To(BeEmpty())
	})

	It("has a WRITE that is refused, whose key can be found", func() {
		prepare("refused-write")
		var story struct {
			Because []string `json:"because"`
		}
		rack.JSON(&story, "why", "cn0")
		Expect(rack.OK("why", "cn0", "--wr", "0")).To(ContainSubstring("WRITE 1 (wr_id 0x0): 8 bytes"))
		Expect(rack.Run("why", "cn0", "--wr", "99")).To(And(fixture.HaveExited(1), HaveField("Stderr", ContainSubstring("noted anything of work request 99"))))
		text := strings.Join(story.Because, "\n")
		Expect(text).To(ContainSubstring("because no region has R_Key"))
		reason := regexp.MustCompile(`vendor_err (0x\w+);`).FindStringSubmatch(text)[1]
		var mrs struct {
			MRs []struct {
				Kind string `json:"kind"`
				RKey uint32 `json:"rkey"`
			} `json:"mrs"`
		}
		rack.JSON(&mrs, "mrs", "ms0")
		var key uint32
		for _, r := range mrs.MRs {
			if r.Kind == "region" {
				key = r.RKey
			}
		}
		wrong := check(1, "refused-write", "reason=1", "rkey=0x12345678")
		Expect(wrong).To(And(ContainSubstring("reason=1 is wrong"), ContainSubstring("with R_Key 0x12345678 fails: remote access error")))
		check(0, "refused-write", "reason="+reason, "rkey="+strconv.FormatUint(uint64(key), 10))
	})

	DescribeTable("has a memory server that is silent", func(seed string, repair ...string) {
		prepare("silent-server", "--seed", seed)
		data, err := os.ReadFile("/run/rdmalab/" + rack.Name + "/exercises/silent-server.json")
		Expect(err).NotTo(HaveOccurred())
		var state struct{ Server string }
		Expect(json.Unmarshal(data, &state)).To(Succeed())
		wrong := check(1, "silent-server", "server=cn0")
		Expect(wrong).To(And(ContainSubstring("server=cn0 is not the one"), ContainSubstring("no path from cn1 to "+state.Server)))
		for i := range repair {
			repair[i] = strings.ReplaceAll(repair[i], "SERVER", state.Server)
		}
		rack.OK(repair...)
		Expect(check(1, "silent-server")).To(And(ContainSubstring("server: no answer"), ContainSubstring("all paths from cn0 work")))
		check(0, "silent-server", "server="+state.Server)
	},
		Entry("because it has crashed", "3", "restart", "SERVER"),
		Entry("because its NIC has crashed", "2", "restart", "SERVER", "--nic"),
		Entry("because its link is cut", "5", "link", "SERVER", "up"),
		Entry("because its answers are lost", "1", "heal", "--link", "SERVER"),
	)

	It("has a lock under contention, which the switch can cheapen", func() {
		prepare("contended-lock")
		Expect(check(1, "contended-lock")).To(ContainSubstring("at most 8 are wanted"))
		rack.OK("switch", "program", "swordbox")
		rack.OK("switch", "rules", "add", "server=ms0", "action=atomics", "misses=wait")
		check(0, "contended-lock")
	})

	It("wants a switch program of one's own", func() {
		prepare("switch-program")
		Expect(check(1, "switch-program")).To(ContainSubstring("the switch runs swordbox, which is no program of yours"))
	})

	It("refuses what it does not know", func() {
		for args, want := range map[string]string{
			"nothing":                                 `there is no exercise "nothing"; there are lost-packet`,
			"contended-lock --check --answer a=1":     "asks for no answer",
			"lost-packet --check --answer a=1":        `does not ask for "a"; its answers: lost noticed again`,
			"lost-packet --check --answer lost":       "write it like KEY=VALUE",
			"lost-packet --answer lost=1":             "--answer goes with --check",
			"lost-packet --hint=9":                    "has hints 1 to 3",
			"--check":                                 "name the exercise: lost-packet",
			"silent-server --check --hint":            "none of the others can be",
			"silent-server --check --seed 4294967297": "none of the others can be",
		} {
			s := rack.Run(append([]string{"exercise"}, strings.Fields(args)...)...)
			Expect(s).To(fixture.HaveExited(2), args)
			Expect(s.Stderr).To(ContainSubstring(want), args)
		}
	})
})
