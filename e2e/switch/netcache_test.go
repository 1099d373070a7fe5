package switch_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"

	"github.com/rdmalab/rdmalab/e2e/fixture"
	"github.com/rdmalab/rdmalab/swordbox/netcache"
)

const (
	udpItemPort  = 11211
	udpItemReads = 3000
	udpItemAfter = 1000 // reads after which it says that it goes on
)

// udpItem serves one item, "counter", by memcached's protocol over UDP, as long as the process lives.
func udpItem(addr string) error {
	c, err := net.ListenPacket("udp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	fmt.Println("listening")
	b, value := make([]byte, 2048), ""
	for {
		n, from, err := c.ReadFrom(b)
		if err != nil {
			return err
		}
		answer := "END\r\n"
		switch line, data, _ := strings.Cut(string(b[8:n]), "\r\n"); {
		case strings.HasPrefix(line, "set "):
			value, answer = strings.TrimSuffix(data, "\r\n"), "STORED\r\n"
		case value != "":
			answer = fmt.Sprintf("VALUE counter 0 %d\r\n%s\r\nEND\r\n", len(value), value)
		}
		if _, err := c.WriteTo(append(b[:8:8], answer...), from); err != nil {
			return err
		}
	}
}

// udpCall sends request number id, again and again until it is answered.
func udpCall(c net.Conn, id uint16, text string) (string, error) {
	head := append(binary.BigEndian.AppendUint16(nil, id), 0, 0, 0, 1, 0, 0)
	b := make([]byte, 2048)
	for end := time.Now().Add(natPatience); time.Now().Before(end); {
		if _, err := c.Write(append(head, text...)); err != nil {
			return "", err
		}
		if err := c.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
			return "", err
		}
		for {
			n, err := c.Read(b)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				return "", err
			}
			if n >= 8 && bytes.Equal(b[:2], head[:2]) {
				return string(b[8:n]), nil
			}
		}
	}
	return "", fmt.Errorf("no answer to %q", text)
}

// udpReads reads the counter many times, and increments it after each hundredth time. It checks that the counter has
// what this process has written last.
func udpReads(addr string) error {
	c, err := net.Dial("udp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	id, value := uint16(0), 0
	for i := range udpItemReads {
		if i%100 == 0 {
			id++
			value++
			text := strconv.Itoa(value)
			if got, err := udpCall(c, id, fmt.Sprintf("set counter 0 0 %d\r\n%s\r\n", len(text), text)); err != nil || got != "STORED\r\n" {
				return fmt.Errorf("set: %q, %w", got, err)
			}
		}
		id++
		got, err := udpCall(c, id, "get counter\r\n")
		if err != nil {
			return err
		}
		if want := fmt.Sprintf("VALUE counter 0 %d\r\n%d\r\nEND\r\n", len(strconv.Itoa(value)), value); got != want {
			return fmt.Errorf("read %d: %q, want %q", i, got, want)
		}
		if i == udpItemAfter {
			fmt.Println("goes on")
		}
	}
	fmt.Println("all values were right")
	return nil
}

var _ = Describe("A rule of action cache", Ordered, func() {
	var rack *fixture.Rack

	BeforeAll(func() { rack = fixture.Up(boxed) })

	It("answers GETs, while values change and a memory server and the switch restart", func() {
		rack.OK("switch", "rules", "add", "id=kv", "server=ms0", "action=cache", "store=ms1", "items=64", "hot=1")
		cached := func() []netcache.Item {
			var list []netcache.Item
			rack.JSON(&list, "switch", "cached")
			return list
		}
		Eventually(cached, "30s").Should(And(HaveLen(1), HaveEach(HaveField("Store", ConsistOf(HaveField("Up", true))))))
		served, _ := inHost(rack, "ms0", fmt.Sprintf("udp-item 0.0.0.0:%d", udpItemPort))
		Eventually(served, "30s").Should(gbytes.Say("listening"))
		out, ended := inHost(rack, "cn0", fmt.Sprintf("udp-reads %s:%d", rack.Host("ms0").IPv4, udpItemPort))
		Eventually(out, "60s").Should(gbytes.Say("goes on"))
		Expect(cached()).To(HaveEach(HaveField("Answered", BeNumerically(">", udpItemAfter/2))))
		rack.OK("crash", "switch")
		rack.OK("restart", "switch")
		var err error
		Eventually(ended, "120s").Should(Receive(&err))
		Expect(err).NotTo(HaveOccurred())
		Expect(string(out.Contents())).To(ContainSubstring("all values were right"))
		Expect(rack.OK("switch", "cached")).To(ContainSubstring("ms0:11211"))
	})

	It("drops TCP to the port of the server", func() {
		before := rack.SwitchCounters()["cache"]["tcp"]
		rack.Run("exec", "cn0", "--", "/bin/bash", "-c", fmt.Sprintf("timeout 2 bash -c 'echo > /dev/tcp/%s/%d'", rack.Host("ms0").IPv4, udpItemPort))
		Expect(rack.SwitchCounters()["cache"]["tcp"]).To(BeNumerically(">", before))
	})
})
