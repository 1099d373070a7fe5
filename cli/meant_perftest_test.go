package cli

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// Each option of perftest is one of perf's with the same meaning, or is answered by what to write in its place. -o is
// one of perf's with another meaning: its values of perftest are answered.
func TestOptionsOfPerftestAreAnswered(t *testing.T) {
	list, err := os.ReadFile("testdata/perftest-options.txt")
	if err != nil {
		t.Fatal(err)
	}
	same := strings.Fields("-s --size -n --iters -t --tx-depth -Q --cq-mod -c --connection -I -m --mtu -a --all -b --bidirectional " +
		"-D --duration -x --gid-index -q --outs --ipv6 --report_gbits -h --help --port")
	perf := perfCmd()
	perf.InitDefaultHelpFlag()
	var answered []string
	for line := range strings.Lines(string(list)) {
		names, _, ok := strings.Cut(line, " | ")
		if !ok || line[0] == '#' {
			continue
		}
		for name := range strings.FieldsSeq(names) {
			answered = append(answered, name)
			text := tableMeant(perf, name)
			switch known := has(perf, name); {
			case slices.Contains(same, name) != (known && text == ""):
				t.Errorf("%s: a flag of perf: %v, answer %q", name, known, text)
			case known:
			default:
				if _, err := run(t, "perf", "ib_write_bw", "--from", "cn0", "--to", "ms0", name); !isUse(err) || !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%s: %v, want %s", name, err, text)
				}
			}
			for word := range strings.FieldsSeq(text) {
				if flag := strings.Trim(word, ",;:"); strings.HasPrefix(flag, "--") && !strings.Contains(text, "rdmalab ") && !has(perf, flag) {
					t.Errorf("%s: the answer has %s, which perf has not", name, flag)
				}
			}
		}
	}
	if len(answered) < 200 {
		t.Errorf("%d options", len(answered))
	}
	for _, m := range perftestFlags() {
		if !slices.Contains(answered, m.flag) {
			t.Errorf("%s is no option of perftest", m.flag)
		}
	}
	perf.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Shorthand != "" && !slices.Contains(answered, "-"+f.Shorthand) {
			t.Errorf("-%s is no option of perftest: is it one of a later version?", f.Shorthand)
		}
	})
	for _, args := range [][]string{{"-o", "16"}, {"--output=bandwidth"}} {
		if _, err := run(t, append([]string{"perf", "read_bw", "--from", "cn0", "--to", "ms0"}, args...)...); !isUse(err) || !strings.Contains(err.Error(), "write --outs N") {
			t.Errorf("%v: %v", args, err)
		}
	}
}
