package verbs

import (
	"errors"
	"os"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
	"github.com/rdmalab/rdmalab/softrnic/qpattr"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

const (
	cellsSource = "testdata/cells.c"
	// refusedAnswers is the output of the program of refusedSource. Interop compares it with a
	// kernel's.
	refusedSource, refusedAnswers = "testdata/refused.c", "testdata/refused.txt"
	cellBits                      = 21 // attributes of a queue pair
)

var (
	cellServices = map[string]verbs.QPType{"RC": verbs.RC, "UC": verbs.UC, "UD": verbs.UD}
	cellStates   = map[string]verbs.QPState{
		"RESET": verbs.StateReset, "INIT": verbs.StateInit, "RTR": verbs.StateRTR, "RTS": verbs.StateRTS, "SQD": verbs.StateSQD, "SQE": verbs.StateSQE,
		"ERR": verbs.StateError,
	}
)

// cellLine returns the letters that the program must print for a service and two states.
func cellLine(service verbs.QPType, from, to verbs.QPState, base qpattr.Mask) string {
	sets := []qpattr.Mask{base}
	for i := range cellBits {
		sets = append(sets, base^1<<i)
	}
	for i := range cellBits {
		for k := i + 1; k < cellBits; k++ {
			sets = append(sets, base^1<<i^1<<k)
		}
	}
	var b strings.Builder
	for _, named := range sets {
		at := to
		if named&qpattr.State == 0 {
			at = from
		}
		switch err := qpattr.CheckRoCE(service, from, at, named); {
		case err == nil:
			b.WriteByte('.')
		case errors.Is(err, verbs.ErrNotSupported):
			b.WriteByte('n')
		default:
			b.WriteByte('x')
		}
	}
	return b.String()
}

// ibv_modify_qp of a C program with each set of attributes that differs from what a transition needs
// by up to two, for each service and pair of states (IBTA 11.2.5.2/attributes).
var _ = Describe("a C program that modifies queue pairs", Ordered, func() {
	var (
		rack    *fixture.Rack
		program string
	)
	BeforeAll(func() {
		fixture.Need("gcc", "gcc")
		if _, err := os.Stat("/usr/include/infiniband/verbs.h"); err != nil {
			Skip("libibverbs-dev is not installed: apt-get install libibverbs-dev")
		}
		source, err := os.ReadFile(cellsSource)
		Expect(err).NotTo(HaveOccurred())
		program = compile(string(source))
		rack = fixture.Up("hosts:\n  - {name: cn0, role: compute}\n  - {name: cn1, role: compute, lenient: true}\n")
	})

	It("is answered as the table of attributes says", func() {
		lines := strings.Split(strings.TrimSpace(rack.OK("exec", "cn0", "--", program)), "\n")
		Expect(lines).To(HaveLen(3 * 6 * 7))
		for _, line := range lines {
			f := strings.Fields(line)
			Expect(f).To(HaveLen(5), line)
			base, err := strconv.ParseUint(f[3], 0, 32)
			Expect(err).NotTo(HaveOccurred())
			Expect(f[4]).To(Equal(cellLine(cellServices[f[0]], cellStates[f[1]], cellStates[f[2]], qpattr.Mask(base))), strings.Join(f[:4], " "))
		}
	})

	It("gets the errno or status that a kernel gives when it makes objects, gives them bad values or posts work requests", func() {
		source, err := os.ReadFile(refusedSource)
		Expect(err).NotTo(HaveOccurred())
		want, err := os.ReadFile(refusedAnswers)
		Expect(err).NotTo(HaveOccurred())
		Expect(rack.OK("exec", "cn0", "--", compile(string(source)))).To(Equal(string(want)))
	})

	It("is refused with a reason in the log", func() {
		Expect(rack.OK("logs", "cn0")).To(And(ContainSubstring("modify QP refused"), ContainSubstring("further refusals")))
	})

	It("is refused less by a lenient host", func() {
		strict, lenient := rack.OK("exec", "cn0", "--", program), rack.OK("exec", "cn1", "--", program)
		Expect(strings.Count(lenient, ".")).To(BeNumerically(">", 2*strings.Count(strict, ".")))
	})
})
