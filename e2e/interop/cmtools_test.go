package interop_test

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/interop/ask"
)

// programLimit is how long a program over librdmacm may take in the guest.
const programLimit = 60 * time.Second

// serveOurs runs our program as the server and a program of the guest as the client, and returns
// the output of the guest's program.
func serveOurs(p speakerPlan, program []string, lines ...string) string {
	GinkgoHelper()
	var e *pingEnd
	var a ask.Answer
	for try := 1; ; try++ {
		e = startSpeaker(p)
		e.says("listening")
		a = linux.start(program...)(programLimit)
		if try == clockTries || !strings.Contains(a.Output, unclocked) {
			break
		}
		GinkgoWriter.Println("again:", a.Output)
		e.stop()
	}
	GinkgoWriter.Printf("guest: %s(exit %d)\nours: %s", a.Output, a.Code, e.stderr.String())
	Expect(a.Code).To(BeZero(), "%s\nours: %s", a.Output, e.stderr.String())
	if p.Part == "cycles" {
		e.tell("go")
	}
	e.finishes(append(lines, "clean")...)
	return a.Output
}

// dialTheirs runs a program of the guest as the server and our program as the client. It repeats
// the dial while the guest's program does not listen yet, because that program does not report when
// it does.
func dialTheirs(p speakerPlan, program []string, lines ...string) string {
	GinkgoHelper()
	finish := linux.start(program...)
	Eventually(func() string {
		e := startSpeaker(p)
		said, _ := e.stdout.ReadString('\n') // the output is empty if the dial was refused
		if said == "" {
			_ = e.cmd.Wait()
			return e.stderr.String()
		}
		if said != lines[0]+"\n" {
			return said
		}
		e.finishes(append(lines[1:len(lines):len(lines)], "clean")...)
		return said
	}).WithTimeout(programLimit).Should(Equal(lines[0] + "\n"))
	a := finish(programLimit)
	GinkgoWriter.Printf("guest: %s(exit %d)\n", a.Output, a.Code)
	Expect(a.Code).To(BeZero(), a.Output)
	return a.Output
}

var _ = Describe("programs over librdmacm", func() {
	BeforeEach(watchICRCs)
	BeforeEach(aloneOnCn0)

	const messages, size = 30, 1000
	count := []string{"-C", strconv.Itoa(messages), "-S", strconv.Itoa(size)}
	sent, received := fmt.Sprintf("sent %d", messages), fmt.Sprintf("received %d", messages)

	It("ucmatose connects to our server", func() {
		for _, to := range ourAddrs[:2] {
			args := append([]string{"ucmatose", "-f", family(to), "-s", to.String()}, count...)
			serveOurs(speakerPlan{Part: "ucmatose server", Count: messages, Size: size}, args, sent, received)
		}
		passed("ucmatose", "client", "30 messages of 1000 bytes each way, IPv4 and IPv6; ours leaves")
	})

	It("ucmatose serves our client", func() {
		dialTheirs(speakerPlan{Part: "ucmatose client", To: guestIPv4, Count: messages, Size: size}, append([]string{"ucmatose"}, count...), received, sent)
		passed("ucmatose", "server", "30 messages of 1000 bytes each way; rxe leaves")
	})

	It("udaddy resolves our datagram service", func() {
		for _, to := range ourAddrs[:2] {
			args := append([]string{"udaddy", "-s", to.String()}, count...)
			serveOurs(speakerPlan{Part: "udaddy server", Count: messages, Size: size}, args, received, sent)
		}
		passed("udaddy", "client", "SIDR, 30 datagrams of 1000 bytes each way, IPv4 and IPv6")
	})

	It("udaddy answers our requests for its datagram service", func() {
		dialTheirs(speakerPlan{Part: "udaddy client", To: guestIPv4, Count: messages, Size: size}, append([]string{"udaddy"}, count...), sent, received)
		passed("udaddy", "server", "SIDR, 30 datagrams of 1000 bytes each way")
	})

	DescribeTable("perftest -R connects to our server", func(test string, size, iters int, want string) {
		program := []string{"ib_" + test, "-d", "rxe0", "-R", "-s", strconv.Itoa(size), "-n", strconv.Itoa(iters), ourAddrs[0].String()}
		serveOurs(speakerPlan{Part: "perftest server", Size: size, Count: iters}, program, want)
		passed("ib_"+test+" -R", "client", fmt.Sprintf("%d messages of %d bytes", iters, size))
	},
		Entry("write_bw", "write_bw", 4096, 100, "0 messages, 100 WRITEs, 0 READs"),
		Entry("read_bw", "read_bw", 65536, 50, "0 messages, 0 WRITEs, 50 READs"),
		Entry("send_bw", "send_bw", 4096, 100, "100 messages, 0 WRITEs, 0 READs"),
	)
})
