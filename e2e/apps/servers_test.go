package apps

import (
	"bytes"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// serve starts a program on the host of servers that serves until it is stopped, and returns when it listens by
// librdmacm. Earlier programs have ended before.
func serve(s *stage, args ...string) (stop func()) {
	GinkgoHelper()
	listening := func() int { return s.Listeners(s.server) }
	Eventually(listening).WithTimeout(20 * time.Second).WithPolling(50 * time.Millisecond).Should(BeZero())
	ended := s.Start(append([]string{"exec", s.server, "--", "timeout", "90"}, args...)...)
	Eventually(listening).WithTimeout(20 * time.Second).WithPolling(50 * time.Millisecond).Should(BeNumerically(">", 0))
	return func() {
		s.Run("exec", s.server, "--", "pkill", args[0])
		ended()
	}
}

// rcopy copies a file.
type rcopy struct{}

func (rcopy) run(s *stage) {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	sent := bytes.Repeat([]byte("0123456789abcdef"), 50000)
	Expect(os.WriteFile(filepath.Join(dir, "from"), sent, 0o644)).To(Succeed())
	defer serve(s, "rcopy")()
	client := s.Run("exec", "cn0", "--", "timeout", "60", "rcopy", filepath.Join(dir, "from"), s.address()+":"+filepath.Join(dir, "to"))
	Expect(client).To(fixture.HaveExited(0))
	Eventually(func() ([]byte, error) { return os.ReadFile(filepath.Join(dir, "to")) }).WithTimeout(20 * time.Second).Should(Equal(sent))
}

// cmtime makes connections.
type cmtime struct{}

func (cmtime) run(s *stage) {
	GinkgoHelper()
	defer serve(s, "cmtime")()
	out := s.Run("exec", "cn0", "--", "timeout", "60", "cmtime", "-c", "20", "-s", s.address())
	Expect(out).To(fixture.HaveExited(0))
	Expect(out.Stdout).To(MatchRegexp(`(?s)connect +:.*destroy +:`))
}

// fio writes by an operation of its engine rdma. The server of SENDs verifies each block.
type fio struct{ verb string }

func (f fio) run(s *stage) {
	GinkgoHelper()
	fixture.Need("fio", packages)
	dir := GinkgoT().TempDir()
	job := func(name, text string) string {
		path := filepath.Join(dir, name)
		Expect(os.WriteFile(path, []byte(text), 0o644)).To(Succeed())
		return path
	}
	const common = "[job]\nioengine=rdma\nport=9999\nbs=64k\nsize=1m\n"
	received, sent, done := "iodepth=8\n", "iodepth=8\n", "total=1,0,0,0" // the writer says when it is ready
	if f.verb == "send" {
		// Its connections allow no repetition after an RNR NAK: there is a RECV for each of the 16 blocks
		// from the beginning.
		received, sent, done = "iodepth=16\nverify=crc32c\nverify_fatal=1\nverify_state_save=0\n", "iodepth=8\nverify=crc32c\ndo_verify=0\nverify_state_save=0\n", "total=16,0,0,0"
	}
	server := job("server", common+"rw=read\n"+received)
	client := job("client", common+"rw=write\nverb="+f.verb+"\nhostname="+s.address()+"\n"+sent)
	ended := make(chan fixture.Result, 1)
	Eventually(func() int { return s.Listeners(s.server) }).WithTimeout(20 * time.Second).Should(BeZero())
	go func() {
		defer GinkgoRecover()
		ended <- s.Run("exec", s.server, "--", "timeout", "90", "fio", server)
	}()
	Eventually(func() int { return s.Listeners(s.server) }).WithTimeout(20 * time.Second).Should(BeNumerically(">", 0))
	out := s.Run("exec", "cn0", "--", "timeout", "60", "fio", client)
	Expect(out).To(fixture.HaveExited(0))
	Expect(out.Stdout).To(ContainSubstring("total=0,16,0,0"))
	var other fixture.Result
	Eventually(ended).WithTimeout(100 * time.Second).Should(Receive(&other))
	Expect(other).To(fixture.HaveExited(0))
	Expect(other.Stdout).To(ContainSubstring(done))
}
