package verbs

import (
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// kinds are the programs of testdata/kinds, and what each is about. Each has several cases; a case
// says the rule or the manual page that it holds.
var kinds = []struct{ name, about string }{
	{"pieces", "scatter and gather"},
	{"rights", "what a request may touch"},
	{"posts", "posts and completions"},
	{"wakes", "completion channels"},
	{"objects", "objects and queries"},
	{"datagrams", "datagrams, unreliable connections and multicast"},
	{"shared", "shared receive queues and memory windows"},
	{"forks", "children of fork"},
	{"sendrings", "send rings in memory of a program"},
	{"xrc", "extended reliable connections"},
}

// byProvider are the cases that the rxe provider of rdma-core gets wrong, over a kernel's NIC as well.
var byProvider = map[string]string{
	"pieces of ibv_wr_set_inline_data_list": "the provider copies each piece to the beginning of the data",
}

// kindCases returns the cases of a program's output, and for each what was wrong.
func kindCases(output string) (names []string, wrong map[string][]string) {
	wrong = map[string][]string{}
	for line := range strings.Lines(output) {
		line = strings.TrimRight(line, "\n")
		name, _, isCase := strings.Cut(line, " [")
		switch {
		case strings.HasPrefix(line, "  ") && len(names) > 0:
			last := names[len(names)-1]
			wrong[last] = append(wrong[last], strings.TrimSpace(line))
		case isCase:
			names = append(names, name)
		}
	}
	return names, wrong
}

var _ = Describe("a C program meets what manual pages and the specification say of", Ordered, func() {
	var rack *fixture.Rack
	BeforeAll(func() {
		needCompiler()
		rack = fixture.Up("hosts:\n  - {name: cn0, role: compute}\n")
	})

	for _, k := range kinds {
		It(k.about, func() {
			r := rack.Run("exec", "cn0", "--", "timeout", "100", compileFile(filepath.Join("testdata", "kinds", k.name+".c")), "0")
			Expect(r.Code).To(BeNumerically("<=", 1), r.String())
			names, wrong := kindCases(r.Stdout)
			Expect(len(names)).To(BeNumerically(">", 4), r.String())
			for _, name := range names {
				if byProvider[name] == "" {
					Expect(wrong[name]).To(BeEmpty(), name)
				}
			}
			Expect(r.Stdout).To(HaveSuffix(" cases wrong\n"), "the program has ended early")
		})
	}
})
