package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/topo/guests"
	"github.com/rdmalab/rdmalab/topo/machines"
)

// rackEnv is the environment variable that names the rack for commands without the flag --rack.
const rackEnv = "RDMALAB_RACK"

const defaultRack = rackfile.DefaultName

// exitCode is an error that ends the program with this exit status and without a message, because
// the command has already printed the reason.
type exitCode int

func (e exitCode) Error() string { return "exit status " + strconv.Itoa(int(e)) }

// failure is an error that ends the program with code as its exit status. Its message is printed.
type failure struct {
	error
	code int
}

func rootCmd(commands ...*cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use:           "rdmalab",
		Short:         "A rack of RDMA machines on one Linux box",
		Version:       readVersion().Version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	name := cmp.Or(os.Getenv(rackEnv), defaultRack)
	root.PersistentFlags().String("rack", name, "name of the rack (environment "+rackEnv+")")
	must(root.RegisterFlagCompletionFunc("rack", everyArgument(func(*cobra.Command) []string { return racksUp() })))
	root.SetUsageTemplate(plainUsage(root.UsageTemplate()))
	root.SetVersionTemplate("rdmalab {{.Version}}\n") // the first line of `rdmalab version`
	root.SetFlagErrorFunc(flagError)
	addGroups(root, commands)
	carryAll(commands)
	root.AddCommand(commands...)
	checkedOutputs(root)
	root.InitDefaultCompletionCmd()
	bashCompletion(root)
	documenting(root)
	explainAll(root)
	refuseTopics(root)
	return root
}

func rackName(cmd *cobra.Command) (string, error) {
	name, err := cmd.Flags().GetString("rack")
	if err != nil {
		return "", err
	}
	return name, asUse(rackfile.CheckName(name))
}

// rackOf returns the description and the paths of the rack on which the command works. It returns
// an error if the rack is not up.
func rackOf(cmd *cobra.Command) (*rackfile.Rack, rackfile.Paths, error) {
	name, err := rackName(cmd)
	if err != nil {
		return nil, rackfile.Paths{}, err
	}
	if e := elsewhereOf(cmd); e != nil {
		return e.reach(cmd)
	}
	client, several, err := machines.Open(name)
	if err != nil {
		return nil, rackfile.Paths{}, err
	}
	if several {
		return reach(cmd, client)
	}
	paths := rackfile.PathsOf(name)
	r, err := guests.Load(paths)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, paths, fmt.Errorf("rack %q is not up: run `rdmalab up` first%s", name, otherRacks(name))
	case errors.Is(err, fs.ErrPermission):
		return nil, paths, fmt.Errorf("rack %q belongs to root: run the command with sudo (%w)", name, err)
	case err != nil:
		return nil, paths, fmt.Errorf("rack %q: %w; run `rdmalab down --rack %s`", name, err, name)
	}
	return r, paths, nil
}

func otherRacks(name string) string {
	others := slices.DeleteFunc(racksUp(), func(n string) bool { return n == name })
	if len(others) == 0 {
		return ""
	}
	return " (or choose with --rack one that is: " + strings.Join(others, ", ") + ")"
}

// racksUp lists the racks that have a description in the state folder, also those on several machines whose
// client this machine is.
func racksUp() []string {
	entries, err := os.ReadDir(rackfile.StateRoot)
	if err != nil {
		return nil // there never was a rack, or the folder cannot be read
	}
	var names []string
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), rackfile.ClientSuffix)
		if _, err := os.Stat(rackfile.PathsOf(e.Name()).Spec()); err == nil && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// checkHost returns an error that lists the rack's hosts if the rack has no such host.
func checkHost(r *rackfile.Rack, host string) error {
	if _, _, ok := r.Host(host); !ok {
		if h, _, ok := r.Host(rackfile.MachineOf(host)); ok && host == rackfile.NICName(h.Name, h.DeviceName()) {
			return badUse("%s is the first NIC of %s, which commands call %s", host, h.Name, h.Name)
		}
		return badUse("rack %q has no host %.60q; %sits hosts: %s", r.Name, host, hostMeant(r, host), strings.Join(r.NICNames(), " "))
	}
	return nil
}

// onlyHost returns an error if the name is that of a further NIC of a host.
func onlyHost(r *rackfile.Rack, host string) error {
	if h, _, ok := r.Host(host); ok && h.IsNIC() {
		return badUse("%s is a NIC of %s; name the host: %s", host, h.NIC.Of, h.NIC.Of)
	}
	return nil
}

// checkNode returns an error like checkHost, but also accepts the switch.
func checkNode(r *rackfile.Rack, node string) error {
	if r.IsSwitch(node) {
		return nil
	}
	if _, _, ok := r.Host(node); !ok {
		return badUse("rack %q has no host %.60q; %sit has: %s %s", r.Name, node, nodeMeant(r, node), strings.Join(r.SwitchNames(), " "), strings.Join(r.NICNames(), " "))
	}
	return nil
}

func hostControl(cmd *cobra.Command, host string) (*control.Client, error) {
	r, paths, err := rackOf(cmd)
	if err != nil {
		return nil, err
	}
	if err := checkHost(r, host); err != nil {
		return nil, err
	}
	return control.NewClient(paths.Socket(host)), nil
}

func askNode(cmd *cobra.Command, node, method, path string, in, out any) error {
	r, paths, err := rackOf(cmd)
	if err == nil && !r.IsSwitch(node) {
		err = checkHost(r, node)
	}
	if err != nil {
		return err
	}
	return ask(cmd.Context(), control.NewClient(paths.Socket(node)), node, method, path, in, out)
}

func switchControl(cmd *cobra.Command) (*control.Client, error) {
	_, paths, err := rackOf(cmd)
	if err != nil {
		return nil, err
	}
	name, err := theSwitch(cmd)
	return control.NewClient(paths.Socket(name)), err
}

// must panics if err is not nil. err is the result of registering a function for a flag, which
// fails only if there is no such flag.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func either[T any](cond bool, yes, no T) T {
	if cond {
		return yes
	}
	return no
}

func say(cmd *cobra.Command, format string, args ...any) error {
	_, err := fmt.Fprintf(cmd.OutOrStdout(), format+"\n", args...)
	return err
}

// maxFile bounds the files that commands read, in bytes. Rack files and cost files are short, and
// reading a device file might never end.
const maxFile = 1 << 20

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s has more than %d bytes: it is no rack file or cost file", name, maxFile)
	}
	return data, err
}

// openInput opens a file; the name "-" stands for the standard input.
func openInput(cmd *cobra.Command, name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(cmd.InOrStdin()), nil
	}
	return os.Open(name)
}
