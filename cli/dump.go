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
	writesFile(cmd, "write")
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
