package cli

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/softrnic/capture/crosscheck"
	"github.com/rdmalab/rdmalab/softrnic/capture/dump"
	"github.com/rdmalab/rdmalab/softrnic/capture/pcapng"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma/dissect"
)

type dumpFlags struct {
	opcodes        []string
	qpn, psn, host string
	iface          string
	bad, commented bool
	all, timeOfDay bool
	verify         bool
	dissector      bool
	ladder, check  bool
	write          string
}

func dumpCmd() *cobra.Command {
	var flags dumpFlags
	cmd := &cobra.Command{
		Use:   "dump FILE…",
		Short: "Print the RoCEv2 packets of capture files",
		Long: "dump prints one line for each RoCEv2 packet of pcap and pcapng files, and checks the ICRC of every one that was\n" +
			"captured in full. A line has the time in seconds, the link and direction, source and destination, opcode, queue pair,\n" +
			"PSN and the other fields of the headers, and the packet's comment. The file - is standard input. A summary goes to\n" +
			"standard error.\n\n" +
			"With --verify a second decoder, which is based on gopacket and shares no code with the first, also reads every\n" +
			"packet that was captured in full; if the two differ, dump prints the difference after the packet, if it prints the\n" +
			"packet.\n\n" +
			"The exit status is 1 if a file is damaged (dump ends there), if the decoders differ, or if a RoCEv2 packet, printed\n" +
			"or not, is malformed or has a wrong ICRC.\n\n" +
			"With --ladder dump draws an arrow for each packet, between lifelines of hosts and switch. PSNs are relative to the\n" +
			"first of the flow: the requests of one end of a connection, and the answers to them. An x ends the arrow of a lost\n" +
			"packet, with the fault's name; === is a packet that is sent again, with the number of its first copy and what has\n" +
			"caused it: a NAK that asks for it, a packet before it that is sent again, an answer that came too early, or no answer\n" +
			"for some time. If the capture has both sides of the switch, a line says what the switch has rewritten. With -w the\n" +
			"ladder is a picture (.svg) or a page for a browser (.html).\n\n" +
			"With --check dump walks each flow through the states of requester and responder, and prints the first packet that\n" +
			"breaks a rule of the protocol, with the rule and its section. It reports only what no lost packet explains, and not\n" +
			"the order of packets that a fault has delayed or doubled. The exit status is 1 if a packet breaks a rule.\n\n" +
			"With --dissector dump prints a program in Lua by which Wireshark and tshark show messages of 1RMA, the protocol of\n" +
			"NICs without connections (SIGCOMM 2020).",
		Example: "  rdmalab capture -w trace.pcapng --for 10s && rdmalab dump trace.pcapng\n" +
			"  rdmalab dump --opcode 'RC_READ_*' --qpn 0x111 trace.pcapng\n" +
			"  rdmalab dump -o json trace.pcapng | jq -r 'select(.aeth) | .aeth.syndrome'   # the syndrome of each AETH\n" +
			"  rdmalab dump --verify --bad trace.pcapng\n" +
			"  rdmalab capture -w - | rdmalab dump --commented -\n" +
			"  rdmalab dump --ladder --host 10.77.0.2 trace.pcapng\n" +
			"  rdmalab dump --ladder -w trace.html trace.pcapng\n" +
			"  rdmalab dump --check trace.pcapng\n" +
			"  rdmalab dump --dissector > onerma.lua && tshark -X lua_script:onerma.lua -r trace.pcapng",
		Args: func(cmd *cobra.Command, files []string) error {
			if flags.dissector {
				return cobra.NoArgs(cmd, files)
			}
			return cobra.MinimumNArgs(1)(cmd, files)
		},
		RunE: func(cmd *cobra.Command, files []string) error {
			if flags.dissector {
				_, err := io.WriteString(cmd.OutOrStdout(), dissect.Dissector)
				return err
			}
			config, err := flags.config()
			if err != nil {
				return err
			}
			config.JSON = wantJSON(cmd)
			if flags.write != "" && !flags.ladder {
				return badUse("-w is for --ladder: give both")
			}
			if err := checkInputs(files); err != nil {
				return err
			}
			if flags.check {
				return runCheck(cmd, config, files)
			}
			if flags.ladder {
				return runLadder(cmd, config, files, flags.write)
			}
			return runDump(cmd, config, files)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&flags.opcodes, "opcode", nil, "only packets of these opcodes, like RC_WRITE_LAST or RC_WRITE_* (repeatable)")
	f.StringVar(&flags.qpn, "qpn", "", "only packets to this queue pair, and datagrams from it, decimal or 0x…")
	f.StringVar(&flags.psn, "psn", "", "only packets with this packet sequence number, decimal or 0x…")
	f.StringVar(&flags.host, "host", "", "only packets from or to this IP address")
	f.StringVar(&flags.iface, "interface", "", "only packets of the interface with this name in the file, like \"cn0 up\"")
	f.BoolVar(&flags.bad, "bad", false, "only malformed packets, those with a wrong ICRC and, with --verify, those on which the decoders differ")
	f.BoolVar(&flags.commented, "commented", false, "only packets with a comment: touched by a fault or by the switch")
	f.BoolVar(&flags.all, "all", false, "also print a short line for each frame that is not RoCEv2")
	f.BoolVar(&flags.verify, "verify", false, "decode every packet by gopacket too, and report fields on which the two decoders differ")
	f.BoolVar(&flags.timeOfDay, "time-of-day", false, "print times of day (UTC) instead of seconds since the file's first packet; no effect with -o json, which has date and time")
	f.BoolVar(&flags.dissector, "dissector", false, "print a dissector of 1RMA messages for Wireshark and tshark, and read no file")
	f.BoolVar(&flags.ladder, "ladder", false, "draw a ladder: a lifeline for each host and the switch, an arrow for each packet")
	f.BoolVar(&flags.check, "check", false, "hold the packets against the rules of the protocol; print the first of each flow that breaks one")
	f.StringVarP(&flags.write, "write", "w", "", "with --ladder: draw into this file, a picture (.svg), a page (.html) or text (.txt)")
	cmd.MarkFlagsMutuallyExclusive("ladder", "check")
	completeFlag(cmd, "opcode", opcodeNames)
	lineFlag(cmd)
	return cmd
}

func (f *dumpFlags) config() (c dump.Config, err error) {
	c.TimeOfDay = f.timeOfDay
	if f.verify {
		c.Verify = crosscheck.Frame
	}
	c.Filter = dump.Filter{
		Opcodes: f.opcodes, Interface: f.iface, Bad: f.bad, Commented: f.commented, Other: f.all,
	}
	if c.Filter.QPN, err = given24[wire.QPN]("--qpn", f.qpn); err != nil {
		return c, asUse(err)
	}
	if c.Filter.PSN, err = given24[wire.PSN]("--psn", f.psn); err != nil {
		return c, asUse(err)
	}
	for _, pattern := range f.opcodes {
		if _, err := opcodesLike(pattern); err != nil {
			return c, badUse("--opcode: %w", err)
		}
	}
	if f.host != "" {
		if c.Filter.Host, err = netip.ParseAddr(f.host); err != nil {
			return c, badUse("--host: %w", err)
		}
	}
	return c, nil
}

// checkInputs looks at the files before the first of them is read: a name that is wrong is a mistake in the
// command line.
func checkInputs(files []string) error {
	for _, name := range files {
		if name == "-" {
			continue
		}
		_, err := os.Stat(name)
		switch {
		case err != nil && strings.ContainsAny(name, " =&|"):
			return badUse("%.60q is no file; dump has flags instead of filter expressions: --opcode, --qpn, --psn, --host, --commented", name)
		case err != nil:
			return badUse("%.200s: %w", name, errors.Unwrap(err)) // without the name of the system call
		}
	}
	return nil
}

func parse24(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 0, 24)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number from 0 to 0xffffff", s)
	}
	return uint32(n), nil
}

// given24 parses the value of a flag like parse24. It returns nil if text is "": the flag is not
// set.
func given24[T ~uint32](flag, text string) (*T, error) {
	if text == "" {
		return nil, nil
	}
	n, err := parse24(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	t := T(n)
	return &t, nil
}

func runDump(cmd *cobra.Command, config dump.Config, files []string) error {
	d, err := dump.New(cmd.OutOrStdout(), config)
	if err != nil {
		return err
	}
	for _, name := range files {
		if len(files) > 1 && !config.JSON {
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "==> %s <==\n", name); err != nil {
				return err
			}
		}
		if err := dumpFile(cmd, d, name); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintln(cmd.ErrOrStderr(), &d.Stats); err != nil {
		return err
	}
	if d.Stats.Bad() > 0 {
		return exitCode(1)
	}
	return nil
}

func dumpFile(cmd *cobra.Command, d *dump.Dumper, name string) error {
	in, err := openInput(cmd, name)
	if err != nil {
		return err
	}
	defer in.Close() // the file was only read, so the error does not matter
	if err := d.Dump(name, in); err != nil {
		err = fmt.Errorf("%s: %w", either(name == "-", "standard input", name), err)
		if errors.Is(err, pcapng.ErrNotCapture) {
			err = asUse(err)
		}
		return err
	}
	return nil
}
