package verbs

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
)

// pyverbsTests is where the package python3-pyverbs has the tests of rdma-core, some of them
// compressed; the environment variable RDMA_CORE_TESTS names another folder.
const pyverbsTests = "/usr/share/doc/rdma-core/tests"

// testsOfPyverbs returns the folder, "" if the tests are not here.
func testsOfPyverbs() string {
	dir := os.Getenv("RDMA_CORE_TESTS")
	if dir == "" {
		dir = pyverbsTests
	}
	if _, err := os.Stat(filepath.Join(dir, "run_tests.py")); err != nil {
		return ""
	}
	return dir
}

// unpack copies files, and decompresses those that are compressed.
func unpack(from, to string) {
	GinkgoHelper()
	entries, err := os.ReadDir(from)
	Expect(err).NotTo(HaveOccurred())
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		f, err := os.Open(filepath.Join(from, e.Name()))
		Expect(err).NotTo(HaveOccurred())
		var r io.Reader = f
		name, packed := strings.CutSuffix(e.Name(), ".gz")
		if packed {
			r, err = gzip.NewReader(f)
			Expect(err).NotTo(HaveOccurred())
		}
		b, err := io.ReadAll(r)
		Expect(err).NotTo(HaveOccurred())
		Expect(f.Close()).To(Succeed())
		Expect(os.WriteFile(filepath.Join(to, name), b, 0o644)).To(Succeed())
	}
}

// skip is why a test is skipped; maybe: it need not be.
type skip struct {
	reason string
	maybe  bool
}

// skipsOf reads the list of tests that are skipped with a provider.
func skipsOf(text, provider string) map[string]skip {
	skips, now, counts := make(map[string]skip), skip{}, true
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		word, rest, _ := strings.Cut(line, " ")
		switch {
		case word == "#" || line == "":
		case word == "reason" || word == "maybe" || word == uverbs.ProviderRXE:
			now, counts = skip{rest, word == "maybe"}, word != uverbs.ProviderRXE || word == provider
		case counts:
			skips[strings.TrimSpace(line)] = now
		}
	}
	return skips
}

// vendors are the tests that need hardware of a vendor.
var vendors = regexp.MustCompile(`^tests\.test_(mlx5|efa)`)

// verdict is how a test has ended, as testdata/run.py prints it.
type verdict struct {
	Test, How, Why string
}

// complaints compares what tests did with the list. passed are those that need no vendor's hardware.
func complaints(verdicts []verdict, skips map[string]skip) (wrong []string, passed int) {
	for _, v := range verdicts {
		if vendors.MatchString(v.Test) && v.How != "failed" { // one of 65 needs none of their hardware
			continue
		}
		want, listed := skips[v.Test]
		delete(skips, v.Test)
		switch {
		case v.How == "skipped" && (!listed || want.reason != v.Why):
			wrong = append(wrong, fmt.Sprintf("%s is skipped: %s", v.Test, v.Why))
		case v.How == "ok" && listed && !want.maybe:
			wrong = append(wrong, v.Test+" passes, and is listed as skipped")
		case v.How == "ok":
			passed++
		case v.How != "skipped":
			wrong = append(wrong, fmt.Sprintf("%s fails: %s", v.Test, v.Why))
		}
	}
	for name := range skips {
		wrong = append(wrong, name+" is listed and did not run")
	}
	return wrong, passed
}

// suiteOfPython is the tests of a version of rdma-core.
type suiteOfPython struct {
	from     string // their folder
	list     string // of the tests that are skipped
	env      string // for the shell that runs them
	own, rxe int    // how many tests that need no vendor's hardware pass with a provider
}

// run runs the tests on a host, and compares what they did with the list.
func (s suiteOfPython) run(memory, provider string) {
	GinkgoHelper()
	dir := filepath.Join(GinkgoT().TempDir(), "tests")
	Expect(os.Mkdir(dir, 0o755)).To(Succeed())
	unpack(s.from, dir)
	run, err := filepath.Abs("testdata/run.py")
	Expect(err).NotTo(HaveOccurred())
	list, err := os.ReadFile(s.list)
	Expect(err).NotTo(HaveOccurred())
	rack := fixture.Up(fixture.Small)
	script := fmt.Sprintf("cd %s && %s PYTHONDONTWRITEBYTECODE=1 RDMALAB_VERBS_MEMORY=%s exec timeout 400 /usr/bin/python3 %s --dev rxe0 --port 1 --gid 1", dir, s.env, memory, run)
	out := rack.Run("exec", "--provider", provider, "cn0", "--", "sh", "-c", script)
	Expect(out).To(fixture.HaveExited(0))
	var verdicts []verdict
	for lines := bufio.NewScanner(strings.NewReader(out.Stdout)); lines.Scan(); {
		var v verdict
		Expect(json.Unmarshal(lines.Bytes(), &v)).To(Succeed())
		verdicts = append(verdicts, v)
	}
	wrong, passed := complaints(verdicts, skipsOf(string(list), provider))
	Expect(wrong).To(BeEmpty(), out.Stderr)
	least := s.own
	if provider == uverbs.ProviderRXE {
		least = s.rxe
	}
	Expect(passed).To(BeNumerically(">=", least))
}

// newest is the tests of rdma-core 65, which no distribution has yet: of a source that was built in place, in the
// folder that the environment variable RDMA_CORE_BUILT names. Of its 389 tests 234 need no vendor's hardware.
func newest() (s suiteOfPython, ok bool) {
	source := os.Getenv("RDMA_CORE_BUILT")
	env := fmt.Sprintf("LD_LIBRARY_PATH=%[1]s/build/lib PYTHONPATH=%[1]s/build/python", source)
	return suiteOfPython{filepath.Join(source, "tests"), "testdata/skips-65.txt", env, 176, 119}, source != ""
}

var _ = Describe("the tests of rdma-core in Python", func() {
	DescribeTable("pass, or are skipped for a reason that is listed", func(memory, provider string) {
		from := testsOfPyverbs()
		if from == "" {
			Skip("the tests are not here: apt-get install python3-pyverbs")
		}
		suiteOfPython{from, "testdata/skips-44.txt", "", 142, 97}.run(memory, provider) // of 171
	},
		Entry("with memory of their own", "", uverbs.ProviderOwn),
		Entry("with memory that they share with the daemon", "shared", uverbs.ProviderOwn),
		Entry("with the provider of rxe", "", uverbs.ProviderRXE),
		Entry("with the provider of rxe and shared memory", "shared", uverbs.ProviderRXE),
	)

	if s, ok := newest(); ok {
		DescribeTable("of version 65 pass, or are skipped for a reason that is listed", s.run,
			Entry("with memory of their own", "", uverbs.ProviderOwn),
			Entry("with memory that they share with the daemon", "shared", uverbs.ProviderOwn),
			Entry("with the provider of rxe", "", uverbs.ProviderRXE),
		)
	}

	It("pass between two hosts where a test makes both ends by itself", func() {
		from := testsOfPyverbs()
		if from == "" {
			Skip("the tests are not here: apt-get install python3-pyverbs")
		}
		dir := filepath.Join(GinkgoT().TempDir(), "tests")
		Expect(os.Mkdir(dir, 0o755)).To(Succeed())
		unpack(from, dir)
		data, err := filepath.Abs("testdata")
		Expect(err).NotTo(HaveOccurred())
		list, err := os.ReadFile("testdata/pairs-44.txt")
		Expect(err).NotTo(HaveOccurred())
		rack := fixture.Up(fixture.Small)
		script := fmt.Sprintf("cd %[1]s && export PEER_VERBS=%[2]s/cn1.verbs PEER_TREE=%[2]s/cn1.sys PEER_TESTS=%[3]s/pairs-44.txt PYTHONDONTWRITEBYTECODE=1 && "+
			"exec timeout 400 /usr/bin/python3 %[3]s/run.py --dev rxe0 --port 1 --gid 1", dir, "/run/rdmalab/"+rack.Name+"/sock", data)
		var out fixture.Result
		grown := rack.Grown("cn1", func() { out = rack.Run("exec", "cn0", "--", "sh", "-c", script) })
		Expect(out).To(fixture.HaveExited(0))
		passed := 0
		for lines := bufio.NewScanner(strings.NewReader(out.Stdout)); lines.Scan(); passed++ {
			var v struct {
				verdict
				Pair bool
			}
			Expect(json.Unmarshal(lines.Bytes(), &v)).To(Succeed())
			Expect(v.How).To(Equal("ok"), "%s: %s", v.Test, v.Why)
			Expect(v.Pair).To(BeTrue(), v.Test)
		}
		Expect(passed).To(Equal(strings.Count(string(list), "\ntests.")))
		Expect(grown["rcvd_pkts"]).To(BeNumerically(">", 1000))
	})

	It("are compared with the list", func() {
		list := "# why\nreason no\n  tests.a\nrxe none\n  tests.e\nmaybe never\n  tests.b\n  tests.c\n"
		wrong, passed := complaints([]verdict{
			{"tests.a", "skipped", "no"}, {"tests.b", "ok", ""}, {"tests.c", "skipped", "never"}, {"tests.test_mlx5_x", "skipped", "hardware"}, {"tests.d", "ok", ""},
		}, skipsOf(list, uverbs.ProviderOwn))
		Expect(wrong).To(BeEmpty())
		Expect(passed).To(Equal(2))
		wrong, _ = complaints([]verdict{{"tests.a", "ok", ""}, {"tests.b", "failed", "x"}, {"tests.d", "skipped", "no"}}, skipsOf(list, uverbs.ProviderOwn))
		Expect(wrong).To(HaveLen(4))
		wrong, passed = complaints([]verdict{
			{"tests.a", "skipped", "no"}, {"tests.b", "ok", ""}, {"tests.c", "ok", ""}, {"tests.e", "skipped", "none"},
		}, skipsOf(list, uverbs.ProviderRXE))
		Expect(wrong).To(BeEmpty())
		Expect(passed).To(Equal(2))
	})
})
