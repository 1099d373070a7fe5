package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
)

// Tables of command lines: of other tools, and with names that are nearly right; e2e/smoke runs them all on a rack.
const (
	habitsFile  = "../e2e/smoke/testdata/habits.txt"
	nearestFile = "../e2e/smoke/testdata/nearest.txt"
)

// wordsOf splits a command line at blanks; ' and ' enclose one word.
func wordsOf(line string) (words []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	return words
}

// What other tools have taught is answered by one line that says what to write here, and an error in what was
// typed; or it is understood. An answer that needs a rack is tested in e2e/smoke.
func TestHabits(t *testing.T) {
	if n := answers(t, habitsFile); n < 165 {
		t.Errorf("%d command lines", n)
	}
	// These would take long on a rack: without one, they fail only because there is none.
	for _, line := range []string{
		"perf write_bw -D 10 --from cn0 --to ms0",
		"perf write_bw -a --from cn0 --to ms0",
		"run ycsb --workload A --ops 1 --keys 10 --clients 1",
	} {
		if _, err := run(t, wordsOf(line)...); isUse(err) || err == nil || !strings.Contains(err.Error(), "is not up") {
			t.Errorf("%s: %v; want it to be understood", line, err)
		}
	}
}

// A name, key or value that is nearly right is answered by the right one.
func TestNearest(t *testing.T) {
	if n := answers(t, nearestFile); n < 70 {
		t.Errorf("%d command lines", n)
	}
}

// answers runs the command lines of a table without a rack, and returns how many there are.
func answers(t *testing.T, file string) (lines int) {
	t.Setenv(rackEnv, missingRack)
	table, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir()) // with the files that the lines name
	pcap := "\xd4\xc3\xb2\xa1\x02\x00\x04\x00" + strings.Repeat("\x00", 8) + "\xff\xff\x00\x00\x01\x00\x00\x00"
	for name, content := range map[string]string{"mine.yaml": "name: mine\n", "read.pcapng": pcap} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for row := range strings.Lines(string(table)) {
		cells := strings.SplitN(strings.TrimSuffix(row, "\n"), " | ", 3)
		if len(cells) != 3 || row[0] == '#' || strings.Contains(cells[1], "down --all") {
			continue
		}
		lines++
		root := rootCmd(commands()...)
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		root.SetArgs(wordsOf(cells[1]))
		err := execute(t.Context(), root)
		text := fmt.Sprint(err)
		switch noRack := strings.Contains(text, "is not up"); {
		case cells[0] == "0" && err != nil && !noRack:
			t.Errorf("%s: %v; want it to be understood", cells[1], err)
		case cells[0] == "2" && !noRack && (!isUse(err) || !strings.Contains(text, cells[2]) || strings.Contains(text, "\n")):
			t.Errorf("%s:\n  %s\nwant\n  %s", cells[1], text, cells[2])
		}
	}
	return lines
}
