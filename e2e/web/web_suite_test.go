//go:build chromium

package web

import (
	"bufio"
	"io"
	"os/exec"
	"regexp"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

func TestMain(m *testing.M) { fixture.Main(m) }

func TestWeb(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "page")
}

var _ = BeforeSuite(fixture.Build)

// serve runs rdmalab web until the spec ends, and returns its address.
func serve(rack string, flags ...string) string {
	GinkgoHelper()
	cmd := exec.Command(fixture.Binary(), append([]string{"web", "--rack", rack, "--listen", "127.0.0.1:0"}, flags...)...)
	out, in := io.Pipe()
	session, err := gexec.Start(cmd, io.MultiWriter(GinkgoWriter, in), GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() {
		session.Interrupt().Wait(20 * time.Second)
		Expect(session.ExitCode()).To(Equal(0))
		Expect(in.Close()).To(Succeed())
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	Expect(err).NotTo(HaveOccurred())
	go io.Copy(io.Discard, out) // ends when in is closed
	return regexp.MustCompile(`http://\S+`).FindString(line)
}
