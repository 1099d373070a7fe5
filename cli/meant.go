package cli

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/nearest"
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
	"draw": "graph", "topo": "graph", "topology": "graph", "plot": "graph", "picture": "graph", "diagram": "graph", "map": "graph", "dot": "graph --format dot",
	"kill": "crash HOST", "pause": "hang HOST", "freeze": "hang HOST", "unpause": "resume HOST", "continue": "resume HOST", "reboot": "restart HOST",
	"shell": "exec HOST -- bash", "attach": "exec HOST -- bash", "ssh": "exec HOST -- bash", "enter": "exec HOST -- bash", "nsenter": "exec HOST -- bash",
	"cp":    "exec HOST -- cp FROM TO (hosts have the machine's files)",
	"clear": "heal", "reset": "heal", "netem": "inject", "tc": "inject", "impair": "inject", "chaos": "inject", "fault": "inject",
	"save": "bundle", "export": "bundle", "report": "bundle",
	"tcpdump": "capture HOST", "tshark": "capture HOST", "wireshark": "capture HOST", "sniff": "capture HOST", "pcap": "capture HOST", "read-pcap": "dump FILE",
	"show": "status", "log": "logs", "journal": "logs", "monitor": "top", "htop": "top",
	"stat": "counters HOST", "stats": "counters HOST", "counter": "counters HOST", "metrics": "counters HOST", "statistic": "counters HOST",
	"build": "image", "iperf": "perf TEST", "bench": "perf TEST", "benchmark": "perf TEST", "ping": "exec HOST -- ping HOST, or pingpong",
	"ib_write_bw": "perf write_bw", "ib_read_bw": "perf read_bw", "ib_send_bw": "perf send_bw", "ib_atomic_bw": "perf atomic_bw",
	"ib_write_lat": "perf write_lat", "ib_read_lat": "perf read_lat", "ib_send_lat": "perf send_lat", "ib_atomic_lat": "perf atomic_lat",
	"ycsb": "run ycsb", "simulate": "sim",
}

// commandMeant returns "did you mean rdmalab perf?" for a word that is no command, or "".
func commandMeant(root *cobra.Command, word string) string {
	if meant := meantCommands[strings.ToLower(word)]; meant != "" {
		return "did you mean rdmalab " + meant + "?"
	}
	var names []string
	for _, c := range root.Commands() {
		if slices.Contains(c.SuggestFor, word) {
			return "did you mean rdmalab " + c.Name() + "?"
		}
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return strings.TrimSpace(nearest.Meant(word, names))
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
	{"-w", "counters faults status qps mrs cqs cms congestion", "--watch"},
	{"-d", "top", "leave it out: top draws every second"},
	{"-p", "run", "--keys, --ops and the other flags of run"},
	{"-P", "run", "--workload a to f"},
	{"--threads", "run", "--clients"},
	{"--target", "run", "leave it out: clients work as fast as they can"},
	{"--figure", "experiment", "--figures"},
	{"--replica", "start", "--replicas"},
}

// flagMeant returns what to write instead of an unknown flag: of the tables or, for a flag that is spelled
// almost like one of the command's, that flag. It returns "" if there is nothing to propose.
func flagMeant(cmd *cobra.Command, flag string) string {
	if write := tableMeant(cmd, flag); write != "" {
		return write
	}
	name, long := strings.CutPrefix(flag, "--")
	if !long {
		return ""
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			known = append(known, "--"+f.Name)
		}
	})
	return nearest.Word("--"+name, known)
}

// tableMeant returns what meantFlags and perftestFlags have for a flag of a command, or "".
func tableMeant(cmd *cobra.Command, flag string) string {
	for _, m := range slices.Concat(meantFlags, perftestFlags()) {
		if m.flag != flag || m.commands != "" && !slices.ContainsFunc(strings.Fields(m.commands), func(name string) bool { return of(cmd, name) }) {
			continue
		}
		if word, _, _ := strings.Cut(strings.TrimSuffix(m.write, ","), " "); strings.HasPrefix(word, "-") && !has(cmd, strings.TrimRight(word, ",:")) {
			continue // this command has no such flag
		}
		return m.write
	}
	return ""
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

// hostMeant returns what to write for the address of a host, a pattern of the shell, the two ends of a link and
// what is almost a host's name; "" for others.
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
		return nearest.Meant(word, r.NICNames())
	}
	return "write " + strings.Join(names, ",") + "; "
}

// nodeMeant is hostMeant where a switch is known as well.
func nodeMeant(r *rackfile.Rack, word string) string {
	if meant := hostMeant(r, word); meant != "" {
		return meant
	}
	return nearest.Meant(word, append(r.SwitchNames(), r.NICNames()...))
}

// perftestWords has other words for the parts of the names of tests.
var perftestWords = strings.NewReplacer("bandwidth", "bw", "throughput", "bw", "latency", "lat", "ib_", "", "ib-", "", "rdma_", "", "cas_", "atomic_", "faa_", "atomic_")

// testMeant returns "did you mean TEST? " for a test of perf that is spelled otherwise, and "" for others.
func testMeant(word string) string {
	plain := perftestWords.Replace(strings.ToLower(word))
	if meant := nearest.Meant(plain, perfTests()); meant != "" {
		return meant
	}
	for _, test := range perfTests() {
		if strings.HasSuffix(test, "_"+plain) || strings.HasPrefix(test, plain+"_") {
			return "did you mean " + test + ", for example? "
		}
	}
	return ""
}
