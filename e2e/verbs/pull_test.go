package verbs

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

const (
	pullSource = "../../compose/examples/pull/pull.c"
	pullPage   = "../../docs/guide/find-a-bug.md"
	// pullBlock is how much of a file the program fetches by one READ.
	pullBlock = 4096
)

// repair applies the change that the diff of a page shows to a source.
func repair(source, page string) string {
	GinkgoHelper()
	_, rest, _ := strings.Cut(page, "\n```diff\n")
	diff, _, closed := strings.Cut(rest, "```\n")
	Expect(closed).To(BeTrue(), "the page has no diff")
	var before, after strings.Builder
	for line := range strings.Lines(diff) {
		if line[0] != '+' {
			before.WriteString(line[1:])
		}
		if line[0] != '-' {
			after.WriteString(line[1:])
		}
	}
	Expect(strings.Count(source, before.String())).To(Equal(1), "the diff of the page is not one of %s", pullSource)
	return strings.Replace(source, before.String(), after.String(), 1)
}

// compile makes a program of a C source over librdmacm.
func compile(source string) (program string) {
	GinkgoHelper()
	file := filepath.Join(GinkgoT().TempDir(), "pull.c")
	Expect(os.WriteFile(file, []byte(source), 0o644)).To(Succeed())
	return compileFile(file)
}

// compileFile makes a program of a file with a C source.
func compileFile(file string, flags ...string) (program string) {
	GinkgoHelper()
	program = filepath.Join(GinkgoT().TempDir(), strings.TrimSuffix(filepath.Base(file), ".c"))
	args := append(flags, "-O2", "-Wall", "-Wextra", "-Werror", "-o", program, file, "-lrdmacm", "-libverbs")
	out, err := exec.Command("gcc", args...).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	return program
}

// needCompiler skips if no program over librdmacm can be compiled.
func needCompiler() {
	GinkgoHelper()
	fixture.Need("gcc", "gcc")
	if _, err := os.Stat("/usr/include/rdma/rdma_verbs.h"); err != nil {
		Skip("librdmacm-dev is not installed: apt-get install libibverbs-dev librdmacm-dev")
	}
}

// pull copies a file from ms0 to cn0 and returns what arrived.
func pull(rack *fixture.Rack, program, file string) []byte {
	GinkgoHelper()
	out := filepath.Join(GinkgoT().TempDir(), "out")
	client, server := fixture.Meeting{Server: program + " " + file, Client: program + " SERVER " + out}.Attempt(rack, "ms0")
	Expect(client).To(fixture.HaveExited(0))
	Expect(server).To(fixture.HaveExited(0))
	b, err := os.ReadFile(out)
	Expect(err).NotTo(HaveOccurred())
	return b
}

var _ = Describe("the program of docs/guide/find-a-bug.md", Ordered, func() {
	var (
		rack         *fixture.Rack
		source, page string
		file         string
		sent         []byte
	)
	BeforeAll(func() {
		needCompiler()
		for path, text := range map[string]*string{pullSource: &source, pullPage: &page} {
			b, err := os.ReadFile(path)
			Expect(err).NotTo(HaveOccurred())
			*text = string(b)
		}
		sent = make([]byte, 100*pullBlock+17)
		_, _ = rand.NewChaCha8([32]byte{}).Read(sent) // it does not fail
		file = filepath.Join(GinkgoT().TempDir(), "in")
		Expect(os.WriteFile(file, sent, 0o644)).To(Succeed())
		rack = fixture.Up(fixture.Small)
	})

	// loseAnswer loses the response of the first READ, and the acknowledgement of the SEND behind it.
	// So the client's NIC repeats both when its ACK timer has expired, after 134 ms.
	loseAnswer := func() {
		GinkgoHelper()
		rack.OK("heal")
		rack.OK("inject", "drop", "--class", "response", "--dir", "up", "--next", "2", "--link", "ms0")
	}

	// The wrong version keeps the second block for the first if the server's process gets to fill its
	// buffer within these 134 ms, which takes it microseconds. On a busy machine it may not, and then
	// this run is right. It would have to wait for a processor so long in 5 runs of 5; with one run of
	// 100 that is one test of 10^10.
	It("keeps wrong data under loss, and no other", func() {
		program := compile(source)
		Expect(bytes.Equal(pull(rack, program, file), sent)).To(BeTrue(), "wrong without loss")
		second := append(bytes.Clone(sent[pullBlock:2*pullBlock]), sent[pullBlock:]...)
		for range 5 {
			loseAnswer()
			got := pull(rack, program, file)
			if bytes.Equal(got, second) {
				return
			}
			Expect(bytes.Equal(got, sent)).To(BeTrue(), "a block that is neither the first nor the second")
		}
		Fail("the wrong version was right in 5 runs of 5")
	})

	It("is right under loss with the change that the page shows", func() {
		program := compile(repair(source, page))
		loseAnswer()
		again := rack.Counters("ms0")["replayed_reads"]
		Expect(bytes.Equal(pull(rack, program, file), sent)).To(BeTrue(), "wrong after a READ that was executed twice")
		Expect(rack.Counters("ms0")["replayed_reads"]).To(BeNumerically(">", again))
		rack.OK("inject", "loss", "1%", "--link", "ms0")
		Expect(bytes.Equal(pull(rack, program, file), sent)).To(BeTrue(), "wrong where a packet in a hundred is lost")
	})
})
