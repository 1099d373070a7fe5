package interop_test

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

func open(name string) *os.File {
	GinkgoHelper()
	f, err := os.Open(name)
	Expect(err).NotTo(HaveOccurred())
	return f
}

// icrcIsRight computes the invariant CRC of an untagged RoCEv2 frame as the specification defines
// it (annex A17): CRC-32 over eight bytes of ones and the packet from the IP header on, with ones
// in the fields that routers change.
func icrcIsRight(frame []byte) bool {
	ip := append([]byte(nil), frame[14:]...)
	var udp int
	ones := func(places ...int) {
		for _, i := range places {
			ip[i] = 0xff
		}
	}
	if ip[0]>>4 == 4 {
		udp = int(ip[0]&15) * 4
		ip = ip[:binary.BigEndian.Uint16(ip[2:])]
		ones(1, 8, 10, 11) // TOS, TTL, checksum
	} else {
		udp = 40
		ip = ip[:40+int(binary.BigEndian.Uint16(ip[4:]))]
		ip[0] |= 0x0f
		ones(1, 2, 3, 7) // traffic class, flow label, hop limit
	}
	ones(udp+6, udp+7, udp+8+4) // UDP checksum; the byte of FECN and BECN in the BTH
	body, want := ip[:len(ip)-4], binary.LittleEndian.Uint32(ip[len(ip)-4:])
	crc := crc32.Update(0, crc32.IEEETable, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	return crc32.Update(crc, crc32.IEEETable, body) == want
}

// watchICRCs checks the ICRC of every packet between our NICs and the guest until the end of the
// spec.
func watchICRCs() {
	GinkgoHelper()
	file := filepath.Join(GinkgoT().TempDir(), "watch.pcapng")
	stop := rack.Start("capture", "cn0", "-w", file)
	Eventually(file).Should(BeAnExistingFile())
	DeferCleanup(func() {
		Expect(stop()).To(fixture.HaveExited(0))
		good, bad, _ := countICRCs(file)
		GinkgoWriter.Printf("%d packets with the right ICRC, %d with a wrong one\n", good, bad)
		Expect(bad).To(BeZero())
		Expect(good).To(BeNumerically(">", 0))
	})
}
