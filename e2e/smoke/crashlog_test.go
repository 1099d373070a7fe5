package smoke

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
	"github.com/rdmalab/rdmalab/topo/rack"
)

// crashes returns the records of level ERROR with a stack in a log, each line of which must be a JSON object.
func crashes(g Gomega, log string) (list []map[string]any) {
	for line := range strings.Lines(log) {
		var x map[string]any
		g.Expect(json.Unmarshal([]byte(line), &x)).To(Succeed(), line)
		if x["level"] == "ERROR" && x["stack"] != nil {
			list = append(list, x)
		}
	}
	return list
}

var _ = Describe("a log of JSON", func() {
	It("has one record of whatever ends a daemon", func() {
		r := fixture.New(fixture.Small)
		Expect(r.Up("--log-format", "json")).To(fixture.HaveExited(0))
		r.PanicNIC("cn0")
		var s rack.Status
		r.JSON(&s, "status")
		at := s.Switch.PID
		Expect(syscall.Kill(at, syscall.SIGQUIT)).To(Succeed()) // which makes the runtime print the stacks
		for host, why := range map[string]string{"cn0": "", "switch": "SIGQUIT"} {
			Eventually(func(g Gomega) {
				list := crashes(g, r.OK("logs", host))
				g.Expect(list).To(HaveLen(1))
				g.Expect(list[0]).To(SatisfyAll(HaveKeyWithValue("rack", r.Name), HaveKeyWithValue("host", host), HaveKeyWithValue("msg", Not(BeEmpty())),
					HaveKeyWithValue("panic", ContainSubstring(why)), HaveKeyWithValue("stack", ContainSubstring("goroutine "))))
			}).WithTimeout(topLimit).Should(Succeed(), host)
		}
		for _, name := range []string{"web", "metrics"} {
			cmd := exec.Command(fixture.Binary(), name, "--log-format", "json", "--listen", "127.0.0.1:0", "--rack", r.Name)
			var said bytes.Buffer
			cmd.Stderr = &said
			out, err := cmd.StdoutPipe()
			Expect(err).NotTo(HaveOccurred())
			Expect(cmd.Start()).To(Succeed())
			_, err = out.Read(make([]byte, 1)) // the address: it serves
			Expect(err).NotTo(HaveOccurred())
			Expect(cmd.Process.Signal(syscall.SIGQUIT)).To(Succeed())
			late := time.AfterFunc(topLimit, func() { _ = cmd.Process.Kill() })
			_ = cmd.Wait() // the status is looked at
			Expect(late.Stop()).To(BeTrue(), name)
			Expect(cmd.ProcessState.ExitCode()).To(Equal(2), said.String())
			list := crashes(Default, said.String())
			Expect(list).To(HaveLen(1), said.String())
			Expect(list[0]).To(SatisfyAll(HaveKeyWithValue("rack", r.Name), HaveKeyWithValue("process", name)))
		}
	})
})
