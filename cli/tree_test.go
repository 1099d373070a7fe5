package cli

import (
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// everyCommand calls f for all commands and subcommands that users see, except those of the
// command-line library.
func everyCommand(f func(cmd *cobra.Command)) {
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Hidden || cmd.Name() == "completion" || cmd.Name() == "help" {
			return
		}
		f(cmd)
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	root := rootCmd(commands()...)
	documentAll(root)
	walk(root)
}

// unexplained lists what is missing in the help of a command.
func unexplained(cmd *cobra.Command) []string {
	var miss []string
	if cmd.Short == "" {
		miss = append(miss, "a description in one line")
	}
	if !strings.Contains(cmd.Example, cmd.CommandPath()) && !cmd.HasSubCommands() {
		miss = append(miss, "an example that calls it")
	}
	if cmd.Runnable() && cmd.Args == nil && !strings.Contains(cmd.Use, "…") && !strings.Contains(cmd.Use, "...") {
		miss = append(miss, "how many arguments it takes")
	}
	if offers := cmd.ValidArgsFunction != nil || len(cmd.ValidArgs) > 0; !offers && argument.MatchString(cmd.Use) {
		miss = append(miss, "completion of its argument")
	}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		_, offers := cmd.GetFlagCompletionFunc(f.Name)
		switch {
		case f.Hidden || f.Name == "help" || f.Name == "output" && f.DefValue == "": // the latter is the name of a file
		case len(f.Usage) < 4:
			miss = append(miss, "what --"+f.Name+" means")
		case !offers && (slices.Contains(ofRack, f.Name) && f.Value.Type() != "bool" && !strings.Contains(f.Usage, "IP address") || choice.MatchString(f.Usage) && f.Value.Type() == "string"):
			miss = append(miss, "completion of --"+f.Name)
		}
	})
	return miss
}

var (
	// argument matches an argument whose values are a known set.
	argument = regexp.MustCompile(`\b(HOST|NODE|KIND|FAULT|ID|LINK|SERVER|TEST|SCENARIO)\b`)
	// ofRack are flags whose values are names of the rack or of its protocol.
	ofRack = []string{"from", "to", "on", "link", "host", "opcode", "class", "dir", "output", "mtu", "rack"}
	// choice matches the help of a flag with a fixed set of values.
	choice = regexp.MustCompile(`^[^(]*: (?:a|one of )?[a-z]+(?:, [a-z]+)* or [a-z]+$`)
)

func TestEveryCommandAndFlagIsExplained(t *testing.T) {
	n := 0
	everyCommand(func(cmd *cobra.Command) {
		n++
		for _, m := range unexplained(cmd) {
			t.Errorf("%s lacks %s", cmd.CommandPath(), m)
		}
	})
	if n < 60 {
		t.Errorf("%d commands were looked at", n)
	}
}

// A command without explanations is found.
func TestUnexplainedIsFound(t *testing.T) {
	bad := &cobra.Command{Use: "bad HOST", Run: func(*cobra.Command, []string) {}, Example: "  other thing"}
	bad.Flags().String("from", "", "where it begins")
	bad.Flags().String("colour", "", "")
	bad.Flags().String("mode", "", "how: hard, paper or none")
	root := &cobra.Command{Use: "rdmalab"}
	root.AddCommand(bad)
	got := strings.Join(unexplained(bad), "; ")
	for _, want := range []string{"in one line", "calls it", "how many arguments", "of its argument", "--colour", "completion of --from", "completion of --mode"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
}

// Every command refuses an unknown flag and an extra argument, and its error names its help.
func TestEveryCommandRefusesWhatIsWrong(t *testing.T) {
	everyCommand(func(cmd *cobra.Command) {
		path := strings.Fields(cmd.CommandPath())[1:]
		for _, wrong := range [][]string{{"--bogus"}, {"a", "b", "c", "d", "--bogus=1"}} {
			root := rootCmd(commands()...)
			root.SetOut(io.Discard)
			root.SetErr(io.Discard)
			root.SetArgs(append(slices.Clone(path), wrong...))
			err := execute(t.Context(), root)
			if cmd.Name() == "exec" && len(wrong) > 1 {
				continue // the flag belongs to the program that is run
			}
			if !isUse(err) || !strings.Contains(err.Error(), "--help`") {
				t.Errorf("%s %v: %v", cmd.CommandPath(), wrong, err)
			}
		}
	})
}

// Mistakes in the command line give another exit status than failures.
func TestUsageErrors(t *testing.T) {
	for _, c := range []struct {
		args, want string
		use        bool
	}{
		{"statu", `"statu"; did you mean status? see ` + "`rdmalab --help`", true},
		{"upp", `"upp"; did you mean up?`, true},
		{"ls", `did you mean rdmalab status?`, true},
		{"inject loss 10% cn0", `"cn0" is too much; give the link by a flag: rdmalab inject loss 10% --link cn0`, true},
		{"inject drop --opcode RC_NONE_* --link cn0", `no opcode matches "RC_NONE_*"`, true},
		{"inject nic x", "rdmalab inject nic", true},
		{"capture -w", "-w needs a value: ", true},
		{"perf write_bw --nope", "there is no flag --nope", true},
		{"perf write_bw -Z", "there is no flag -Z", true},
		{"image -o x", "there is no flag -o", true},
		{"switch bogus", `there is no rdmalab switch "bogus", there are: program rules`, true},
		{"switch rules bogus", `there is no rdmalab switch rules "bogus", there are: add remove load`, true},
		{"help statu", `"statu"; did you mean status?`, true},
		{"help switch bogus", `there is no rdmalab switch "bogus"`, true},
		{"clover gett 7", "there are: start stop", true},
		{"completion bogus", "bash zsh", true},
		{"clover get", "too few arguments; write: rdmalab clover get KEY", true},
		{"profile --for 0s", "--for 0s: want a time from 100ms to 10m", true},
		{"profile cn0 --for 11m", "--for 11m0s: want a time from 100ms to 10m", true},
		{"clover get 1 2", "too many arguments; write: rdmalab clover get KEY", true},
		{"faults x", `"x" is too much, rdmalab faults takes no arguments`, true},
		{"crash cn0 --for 5", `"5" for "--for": it is no duration; write it like 500ms`, true},
		{"perf write_bw --from a --to b --iters x", `"x" for "--iters": it is no whole number`, true},
		{"inject loss 1% --link a --seed -1", "of 0 or more", true},
		{"perf write_bw --to b", "give --from (host that is the client, and measures); see `rdmalab perf --help`", true},
		{"perf write_bw --from a --to b --size x", "--size", true},
		{"perf write_bw --from a --to b --port 7", "--port goes with --peer", true},
		{"perf write_bw --peer perftest --from a --verify", "--verify has no effect with --peer perftest", true},
		{"perf write_bw --peer perftest --from a --iters 0", "--iters 0: use a larger value", true},
		{"perf write_bw --peer perftest --from a --mtu 5", "mtu 5: want 256", true},
		{"pingpong rc --on a --rx-depth 0", "--rx-depth 0: use a larger value", true},
		{"switch connections adopt ms0 --qpn 1", "give --server-qpn", true},
		{"sim transport --seeds 0", "--seeds 0: want", true},
		{"experiment steering-gain --rows 9", "--rows 9", true},
		{"clover load --value-size x", "--value-size", true},
		{"up --plug outside", "--plug is for containers: add --runtime docker", true},
		{"up --plug driver", "--plug is for containers: add --runtime docker", true},
		{"up --runtime docker --plug sideways", "sideways", true},
		{"compose --plug sideways", "sideways", true},
		{"run ycsb --steer x", `--steer "x": use none, write, read, both`, true},
		{"run ycsb --store sherman --steer both", "cannot steer requests of store sherman; use --store clover", true},
		{"run convert nothing.csv --from nosuch", `--from "nosuch": use twitter or cachelib`, true},
		{"perf soak --from a --to b --timeout 32", "timeout 32: want a code from 1 to 31", true},
		{"run ycsb --clients 0", "--clients 0: want at least 1", true},
		{"status --rack a/b", "rack name", true},
		{"top --once --url ftp://x", "--url: no address of a page: \"ftp://x\"; write http://HOST:PORT", true},
		{"top --once --url http://x --rack r", "leave out --rack", true},
		{"top --once --url 127.0.0.1:1", "no server answers at http://127.0.0.1:1", false},
		{"status --rack " + missingRack, "run `rdmalab up` first", false},
		{"dump /no/such/file", "/no/such/file: no such file", true},
	} {
		root := rootCmd(commands()...)
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		root.SetArgs(strings.Fields(c.args))
		err := execute(t.Context(), root)
		if err == nil || isUse(err) != c.use || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q, an error in what was typed: %t", c.args, err, c.want, c.use)
		}
	}
	for _, args := range []string{"help", "help sim", "help sim transport", "help inject loss", "help switch rules add"} {
		if _, err := run(t, strings.Fields(args)...); err != nil {
			t.Errorf("%s: %v", args, err)
		}
	}
	if asUse(nil) != nil || !errors.Is(asUse(io.EOF), io.EOF) {
		t.Error("asUse")
	}
}

// A hidden command is found by its own name alone, and has the flags that it has among all commands.
func TestHiddenCommandsAlone(t *testing.T) {
	all := rootCmd(commands()...)
	for _, c := range processes() {
		alone := rootCmd(called([]string{"rdmalab", c.Name()})...)
		got, _, err := alone.Find([]string{c.Name()})
		want, _, wantErr := all.Find([]string{c.Name()})
		if err != nil || wantErr != nil || got.Name() != c.Name() || flagUsages(got.Flags()) != flagUsages(want.Flags()) {
			t.Errorf("%s: found %v, %v; among all commands %v, %v", c.Name(), got, err, want, wantErr)
		}
		if len(alone.Commands()) >= len(all.Commands()) {
			t.Errorf("%s: all commands are made", c.Name())
		}
	}
	if n := len(called([]string{"rdmalab", "--rack", "r", "host"})); n != len(commands()) {
		t.Errorf("%d commands for a command line that begins with a flag, want all", n)
	}
}

// commands makes all commands, including hidden ones.
func commands() []*cobra.Command { return called(nil) }
