package apps

import (
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// torch calls a function of a worker on the server's host by PyTorch RPC, with tensors, which the
// worker sends back changed. By default TensorPipe sends messages by libibverbs, and tensors by TCP on
// several connections; its channel "basic" sends them by libibverbs, too.
type torch struct{}

func (torch) run(s *stage) {
	GinkgoHelper()
	if files, _ := filepath.Glob("/usr/lib/python3*/dist-packages/torch/__init__.py"); len(files) == 0 { // the pattern is right
		Skip("PyTorch is not installed: apt-get install python3-torch")
	}
	calls := func(channel string, least uint64) {
		GinkgoHelper()
		By("channel " + channel)
		sent := s.Counters("cn0")["sent_bytes"]
		ended := make(chan fixture.Result, 1)
		go func() {
			defer GinkgoRecover()
			ended <- worker(s, s.server, "1", channel)
		}()
		caller := worker(s, "cn0", "0", channel)
		var other fixture.Result
		Eventually(ended).WithTimeout(170 * time.Second).Should(Receive(&other))
		Expect(caller).To(fixture.HaveExited(0))
		Expect(caller.Stdout).To(Equal("4000 bytes are right\n400000 bytes are right\n16000000 bytes are right\n"))
		Expect(other).To(fixture.HaveExited(0))
		Expect(s.Counters("cn0")["sent_bytes"]-sent).To(BeNumerically(">", least), "they went another way")
	}
	calls("", 4000)
	calls("basic", 16400000)
}

// worker runs a worker; see rpc.py.
func worker(s *stage, host, rank, channel string) fixture.Result {
	GinkgoHelper()
	script, err := filepath.Abs("testdata/rpc.py")
	Expect(err).NotTo(HaveOccurred())
	return s.Run("exec", host, "--", "timeout", "150", "/usr/bin/python3", script, rank, s.Host("cn0").IPv4, channel)
}
