package smoke

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// words splits a command line as a shell does that knows blanks and single quotes.
func words(line string) (out []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			out = append(out, part)
			continue
		}
		out = append(out, strings.Fields(part)...)
	}
	return out
}

var _ = Describe("what people type who know other tools", func() {
	It("works, or is answered by one line that says what to write instead", func() { answered("habits.txt", 166) })
})

var _ = Describe("what is nearly right", func() {
	It("is answered by the right name, key or value, and changes nothing", func() { answered("nearest.txt", 70) })
})

// answered runs the command lines of a table, of which there are at least some, on a rack.
func answered(name string, least int) {
	table, err := os.ReadFile(filepath.Join("testdata", name))
	Expect(err).NotTo(HaveOccurred())
	rack := fixture.Up("")
	here, err := os.Getwd()
	Expect(err).NotTo(HaveOccurred())
	dir := GinkgoT().TempDir()
	Expect(os.WriteFile(filepath.Join(dir, "mine.yaml"), []byte("name: a\n"), 0o600)).To(Succeed())
	pcap := "\xd4\xc3\xb2\xa1\x02\x00\x04\x00" + strings.Repeat("\x00", 8) + "\xff\xff\x00\x00\x01\x00\x00\x00"
	Expect(os.WriteFile(filepath.Join(dir, "read.pcapng"), []byte(pcap), 0o600)).To(Succeed())
	Expect(os.Chdir(dir)).To(Succeed())
	DeferCleanup(os.Chdir, here)

	before, lines := rack.Status(), 0
	for row := range strings.Lines(string(table)) {
		cells := strings.SplitN(strings.TrimSuffix(row, "\n"), " | ", 3)
		if len(cells) != 3 || row[0] == '#' {
			continue
		}
		lines++
		if strings.Contains(cells[1], "--watch") {
			continue // it does not end; package cli tests it
		}
		status, err := strconv.Atoi(cells[0])
		Expect(err).NotTo(HaveOccurred())
		res := rack.Run(words(cells[1])...)
		Expect(res.Code).To(Equal(status), "%s", res)
		Expect(res.Stdout+res.Stderr).To(ContainSubstring(strings.ReplaceAll(cells[2], "{rack}", rack.Name)), "%s", res)
		if status != 0 {
			Expect(strings.Count(res.Stderr, "\n")).To(Equal(1), "%s", res)
		}
	}
	Expect(lines).To(BeNumerically(">=", least))
	Expect(rack.Status()).To(Equal(before), "the hosts are as they were")
}
