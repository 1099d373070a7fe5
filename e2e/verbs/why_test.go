package verbs

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// A program learns the number of a reason, and rdmalab says the rest when the program has ended.
var _ = Describe("a C program whose WRITE goes beyond a region", Ordered, func() {
	var (
		rack             *fixture.Rack
		qpn, rkey, fresh string
		behind, beyond   string
	)
	BeforeAll(func() {
		needCompiler()
		rack = fixture.Up("hosts:\n  - {name: cn0, role: compute}\n")
		s := rack.Run("exec", "cn0", "--", "timeout", "60", compileFile(filepath.Join("testdata", "beyond.c")))
		Expect(s).To(fixture.HaveExited(0))
		found := regexp.MustCompile(`^qpn (0x[0-9a-f]+) rkey (0x[0-9a-f]+) first (0x[0-9a-f]+) last (0x[0-9a-f]+)
wr_id 100 status 0 vendor_err 0
wr_id 101 status 10 vendor_err 0x22
wr_id 102 status 5 vendor_err 0x61
qpn (0x[0-9a-f]+) errno 22
$`).FindStringSubmatch(s.Stdout)
		Expect(found).NotTo(BeNil(), s.Stdout)
		qpn, rkey, fresh = found[1], found[2], found[5]
		end, err := strconv.ParseUint(found[4], 0, 64)
		Expect(err).NotTo(HaveOccurred())
		behind = fmt.Sprintf("%#x", end+1)
		beyond = fmt.Sprintf(`R_Key %s of region \d+ covers %s to %s, and the request asks for 8 bytes at %s`, rkey, found[3], found[4], behind)
	})

	It("is told why by why", func() {
		s := rack.Run("why", "cn0", qpn)
		Expect(s).To(fixture.HaveExited(0))
		Expect(s.Stdout).To(MatchRegexp(fmt.Sprintf(`posts WRITE 2 \(wr_id 0x65\): 8 bytes at %s with R_Key %s`, behind, rkey)))
		Expect(s.Stdout).To(MatchRegexp(`failed.*: remote access error, because ` + beyond))
		Expect(s.Stdout).To(MatchRegexp(`cn0 says so: it refused RC_WRITE_ONLY with PSN 8 by NAK_REM_ACCESS`))
	})

	It("has its queue pairs in the listing, with the reason of a refused verb", func() {
		s := rack.Run("qps", "cn0")
		Expect(s).To(fixture.HaveExited(0))
		Expect(s.Stdout).To(MatchRegexp(qpn + ` +RC +\(ERR\) +beyond/\d+ .* 0x22\n`))
		text := s.Stdout
		Expect(text).To(MatchRegexp(beyond))
		Expect(text).To(MatchRegexp(fresh + `, .* ago: refused a verb: modify QP from RESET to RTS: `))
	})

	It("is in the log", func() {
		s := rack.Run("logs", "cn0")
		Expect(s).To(fixture.HaveExited(0))
		Expect(s.Stdout).To(MatchRegexp(`queue pair failed.*owner=beyond/\d+.*` + beyond))
	})
})
