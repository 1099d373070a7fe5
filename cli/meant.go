package cli

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/rackfile"
)

// meantCommands has words of other tools for commands, and what to write here. A word that is spelled
// almost like a command but means another one is here, too.
var meantCommands = map[string]string{
	"deploy": "up", "create": "up", "start": "up", "run-rack": "up", "boot": "up",
	"destroy": "down", "stop": "down", "rm": "down", "remove": "down", "delete": "down", "clean": "down", "teardown": "down",
	"ls": "status", "ps": "status", "list": "status", "inspect": "status", "describe": "status", "get": "status", "info": "status",
	"diff": "apply -f RACK.yaml --dry-run", "update": "apply -f RACK.yaml", "plan": "apply -f RACK.yaml --dry-run", "edit": "apply -f RACK.yaml",
	"config": "validate RACK.yaml", "lint": "validate RACK.yaml", "check": "validate RACK.yaml", "schema": "validate --schema",
	"draw": "graph", "topo": "graph", "topology": "graph",
	"kill": "crash HOST", "pause": "hang HOST", "freeze": "hang HOST", "unpause": "resume HOST", "continue": "resume HOST", "reboot": "restart HOST",
	"shell": "exec HOST -- bash", "attach": "exec HOST -- bash", "ssh": "exec HOST -- bash", "enter": "exec HOST -- bash", "nsenter": "exec HOST -- bash",
	"cp":    "exec HOST -- cp FROM TO (hosts have the machine's files)",
	"clear": "heal", "reset": "heal", "netem": "inject", "tc": "inject", "impair": "inject", "chaos": "inject", "fault": "inject",
	"save": "bundle", "export": "bundle", "report": "bundle",
	"tcpdump": "capture HOST", "tshark": "capture HOST", "sniff": "capture HOST", "read-pcap": "dump FILE", "show": "status",
	"stat": "counters HOST", "stats": "counters HOST", "counter": "counters HOST", "metrics": "counters HOST", "statistic": "counters HOST",
	"build": "image", "iperf": "perf TEST", "bench": "perf TEST", "benchmark": "perf TEST", "ping": "exec HOST -- ping HOST, or pingpong",
	"ib_write_bw": "perf write_bw", "ib_read_bw": "perf read_bw", "ib_send_bw": "perf send_bw", "ib_atomic_bw": "perf atomic_bw",
	"ib_write_lat": "perf write_lat", "ib_read_lat": "perf read_lat", "ib_send_lat": "perf send_lat", "ib_atomic_lat": "perf atomic_lat",
	"ycsb": "run ycsb", "simulate": "sim",
}

// meantFlag is a flag of other tools, and what to write instead. Commands lists the commands for which it
// is meant, separated by blanks; "" means all.
type meantFlag struct{ flag, commands, write string }

var meantFlags = []meantFlag{
	{"--topo", "up apply", "-f RACK.yaml"},
	{"-t", "up apply", "-f RACK.yaml"},
	{"-d", "up", "leave it out: up returns when the rack is up, which goes on in the background"},
	{"--detach", "up", "leave it out: up returns when the rack is up, which goes on in the background"},
	{"--wait", "up", "leave it out: up waits until every host answers"},
	{"-i", "exec", "leave it out: exec passes on the terminal and the input: rdmalab exec HOST -- CMD"},
	{"-t", "exec", "leave it out: exec passes on the terminal and the input: rdmalab exec HOST -- CMD"},
	{"--name", "exec", "the host as the first word: rdmalab exec HOST -- CMD"},
	{"--tail", "logs", "a pipe: rdmalab logs HOST | tail"},
	{"-n", "logs", "a pipe: rdmalab logs HOST | tail"},
	{"--dev", "inject", "--link"},
	{"-l", "inject", "--link"},
	{"--direction", "inject", "--dir"},
	{"--bit", "inject", "leave it out: corrupt flips a bit at random, which --seed decides"},
	{"-i", "capture", "the host as the first word: rdmalab capture HOST"},
	{"-c", "capture", "--count"},
	{"-r", "dump", "the file as the first word: rdmalab dump FILE"},
	{"--json", "", "-o json"},
	{"--yaml", "", "-o yaml"},
	{"--csv", "", "-o csv"},
	{"--format", "", "-o, like -o json"},
	{"-a", "status", "leave it out: status shows every host"},
	{"-n", "status", "--rack"},
	{"-w", "counters faults status qps mrs cqs cms", "--watch"},
	{"-F", "perf", "leave it out: frequencies of processors are not looked at"},
	{"-R", "perf", "leave it out: the connection manager connects always"},
	{"-d", "perf", "leave it out: a host has one NIC"},
	{"-i", "perf", "leave it out: a NIC has one port"},
	{"-u", "perf", "--timeout"},
	{"-r", "perf", "--recvs"},
	{"-p", "perf", "leave it out: tests of one host do not disturb each other"},
	{"-l", "perf", "leave it out: posts have up to 32 work requests in a list"},
	{"-d", "top", "leave it out: top draws every second"},
	{"-p", "run", "--keys, --ops and the other flags of run"},
	{"-P", "run", "--workload a to f"},
	{"--threads", "run", "--clients"},
	{"--target", "run", "leave it out: clients work as fast as they can"},
	{"--figure", "experiment", "--figures"},
	{"--replica", "start", "--replicas"},
}

// flagMeant returns what to write instead of an unknown flag: of meantFlags or, for a flag that is spelled
// almost like one of the command's, that flag. It returns "" if there is nothing to propose.
func flagMeant(cmd *cobra.Command, flag string) string {
	for _, m := range meantFlags {
		if m.flag != flag || m.commands != "" && !slices.ContainsFunc(strings.Fields(m.commands), func(name string) bool { return of(cmd, name) }) {
			continue
		}
		if word, _, _ := strings.Cut(strings.TrimSuffix(m.write, ","), " "); strings.HasPrefix(word, "-") && !has(cmd, strings.TrimRight(word, ",:")) {
			continue // this command has no such flag
		}
		return m.write
	}
	name, long := strings.CutPrefix(flag, "--")
	if !long {
		return ""
	}
	best, least := "", 1+len(name)/4
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if d := distance(name, f.Name); !f.Hidden && (d <= least && d < len(name)) {
			best, least = "--"+f.Name, d-1
		}
	})
	return best
}

// of reports whether cmd is the command with a name, or below it.
func of(cmd *cobra.Command, name string) bool {
	for c := cmd; c != nil; c = c.Parent() {
		if c.Name() == name {
			return true
		}
	}
	return false
}

// has reports whether a command has a flag, given with its dashes.
func has(cmd *cobra.Command, flag string) bool {
	if name, long := strings.CutPrefix(flag, "--"); long {
		return cmd.Flags().Lookup(name) != nil
	}
	return cmd.Flags().ShorthandLookup(strings.TrimPrefix(flag, "-")) != nil
}

// distance is the number of letters to insert, remove or change to make a of b (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row[0]
		row[0] = i + 1
		for j := range len(b) {
			next := row[j+1]
			change := last
			if a[i] != b[j] {
				change++
			}
			row[j+1], last = min(row[j+1]+1, row[j]+1, change), next
		}
	}
	return row[len(b)]
}

// argumentsMeant returns the whole command to write instead of one whose arguments are too many, or "".
func argumentsMeant(cmd *cobra.Command, args []string) string {
	if len(args) == 0 {
		return ""
	}
	last := args[len(args)-1]
	but := strings.TrimSpace(cmd.CommandPath() + " " + strings.Join(args[:len(args)-1], " "))
	_, notTime := time.ParseDuration(last)
	_, notNumber := strconv.ParseUint(last, 0, 48)
	switch {
	case cmd.Name() == "down":
		return but + " --rack " + last
	case notTime == nil && has(cmd, "--for"):
		return but + " --for " + last
	case notNumber == nil && cmd.Name() == "read":
		return but + " --at " + last + " --on HOST"
	case slices.Contains([]string{"crash", "restart", "hang", "resume"}, cmd.Name()) && len(args) > 1:
		return cmd.CommandPath() + " " + args[0] + ", and the same for each other host"
	case cmd.HasAvailableSubCommands() && !cmd.HasParent():
		return ""
	case cmd.HasAvailableSubCommands():
		return cmd.CommandPath() + " and one of them"
	}
	return ""
}

// hostMeant returns "write HOST; " for the address of a host, a pattern of the shell and the two ends of a
// link, and "" otherwise.
func hostMeant(r *rackfile.Rack, word string) string {
	var names []string
	for _, name := range r.HostNames() {
		h, _, _ := r.Host(name)
		like, err := path.Match(word, name)
		if err == nil && like || word == h.IPv4.String() || word == h.IPv6.String() {
			names = append(names, name)
		}
	}
	if one, other, ok := strings.Cut(word, "-"); ok && len(names) == 0 {
		_, _, isHost := r.Host(one)
		_, _, too := r.Host(other)
		if isHost && (too || other == rackfile.SwitchName) {
			return "each host has one link, to the switch: write " + one + "; "
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "write " + strings.Join(names, ",") + "; "
}

// testMeant returns "write TEST; " for a test of perf that is spelled with other dashes, or as a program of
// perftest, and "" otherwise.
func testMeant(word string) string {
	letters := func(s string) string { return strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(s)) }
	var ends []string
	for _, test := range perfTests() {
		switch {
		case letters(word) == letters(test):
			return "write " + test + "; "
		case strings.HasSuffix(test, "_"+word):
			ends = append(ends, test)
		}
	}
	if len(ends) > 0 {
		return "write " + ends[0] + ", for example; "
	}
	return ""
}
