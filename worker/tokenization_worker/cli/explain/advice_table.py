"""The next step for each reason of docs/troubleshooting.md and docs/operations.md.

The message of a status says what happened, and often how to go on; this says what to do, and whether the job then
continues by itself.

Fields in braces: `job`, `namespace`, `output`; `again`: how changed data fields take effect; `same`: how
a failed job goes on where nothing in it was wrong; `retried`: whether the operator continues by itself; `taken`: when a
changed field of the Pods takes effect; `unplaced`: what to do about a Pod without a node; `stall_s`: what the job says;
`queued`: what to do about a queue.
"""

from __future__ import annotations

from collections.abc import Mapping

_NOTHING = "Nothing to do."
_WAIT = "Nothing to do: wait."
_RETRIED = "{retried}"
_REPORT = "This is a bug or broken hardware: report it with the message above and the log."
_COMMAND = "A command reports this, not a job: give the command the path or the name that the message asks for."
_FILE = (
    "Replace the corrupt file and {again}, or raise spec.maxCorruptFiles, which drops such files whole: the run "
    "continues from the finished work."
)
_MISMATCHED = (
    "Set a new rerunToken: the run then writes mismatched shards again from the source. `tokjob verify {output}` "
    "lists all."
)
_TABLE = (
    "Put the file back from a copy. Only where the message says so, delete index.json at the output and set a new "
    "rerunToken."
)
_TOKENIZER = "Correct spec.tokenizer as the message says and {again}."
_KUBERAY = "Ask for KubeRay 1.6 or newer with its CustomResourceDefinitions; the job then continues by itself."
_POD_LOG = "Read the log and the Pods above. " + _RETRIED

ADVICE: Mapping[str, str] = {
    # the way of a job
    "Pending": _WAIT,
    "RunStarted": _WAIT,
    "Planning": "Nothing to do: a plan Pod lists the source and checks that it can write to the output, usually within "
    "a minute or two.",
    "Planned": _WAIT,
    "AttemptStarted": _WAIT,
    "ClusterRequested": "Nothing to do: KubeRay makes the Pods.",
    "Starting": _WAIT,
    "WaitingForWorkers": "Wait for the workers that are missing, or let it begin with fewer: set "
    "spec.workers.minReplicas, which counts when spec.startupDeadlineSeconds have passed. The attempt ends then.",
    "WaitingForDriver": "Nothing to do: all workers are ready, and the driver begins.",
    "Running": "Nothing to do: it runs.",
    "Finishing": "Nothing to do: the driver has ended, and its last report is awaited for a minute.",
    "Committed": "Nothing to do: the dataset is complete. `tokjob verify {output}` proves it.",
    "AlreadyComplete": "Nothing to do: the output holds exactly this dataset. A new rerunToken makes another run.",
    "Succeeded": _NOTHING,
    "Retrying": _RETRIED,
    "Rerun": _WAIT,
    "Resumed": _WAIT,
    "ImageChanged": _WAIT,
    "SpecChanged": _WAIT,
    "Suspending": "Nothing to do: the operator releases the machines; finished work is kept.",
    "Suspended": "It continues from the finished work when spec.suspend is false: "
    '`kubectl -n {namespace} patch tkj {job} --type merge -p \'{{"spec":{{"suspend":false}}}}\'`',
    "Queued": "{queued}",
    "TtlIgnored": _NOTHING,
    "MachinesReturned": "Nothing to do: the message names the finalizers that keep the deleted job.",
    # what the cluster lacks or refuses
    "NamespaceNotPrepared": "Prepare the namespace: `tokjob namespace-manifest {namespace} | kubectl apply -f -` (with "
    "--service-account where spec.serviceAccountName names another one). The job then continues by itself.",
    "KubeRayUnavailable": _KUBERAY,
    "KubeRayTooOld": _KUBERAY,
    "KubeRaySilent": (
        "Check that KubeRay's operator runs and watches this namespace: kubectl get pods -A -l "
        "app.kubernetes.io/name=kuberay-operator. The job then continues by itself."
    ),
    "ImagePullFailed": "Correct spec.image, or give the Pods spec.imagePullSecrets for a private registry: {taken}.",
    "ImageUnfit": "Build the image as this project's Dockerfile does, with Ray, and set it in spec.image.",
    "Unschedulable": "{unplaced}",
    "ClusterRejected": "The message above comes from the cluster's admission (a webhook, Pod Security or KubeRay). "
    "Change the fields that it names in the job, or ask the cluster's administrators.",
    "PodInvalid": "Correct what the message names: mostly a Secret or ConfigMap of spec.env that is not in namespace "
    "{namespace}, or resources that no Pod may have.",
    "NameTaken": "Delete the object that has the name, or give the job another name; the job then continues by itself.",
    "WorkerTooOld": "Name a newer image in spec.image, or remove the field that the worker's version does not know.",
    "ChangedForNextAttempt": "Nothing to do. To begin the next attempt now, set spec.suspend to true, then to false.",
    "NotUnderstood": "Upgrade the operator, or remove the field that it does not know from the job.",
    "StartupDeadline": "The cluster added fewer nodes than the job requests: lower spec.workers.replicas, set "
    "spec.workers.minReplicas, or raise spec.startupDeadlineSeconds. " + _RETRIED,
    # how attempts end
    "HeadLost": "The node of the head Pod was lost, or the Pod was deleted. " + _RETRIED,
    "WorkerMemory": "Raise spec.workers.resources.limits.memory as the message says (head: spec.head.resources): "
    "{taken}.",
    "RayJobGone": "The RayJob was deleted from outside; to stop a job set spec.suspend. " + _RETRIED,
    "RayJobStopped": "The RayJob was stopped from outside; to stop a job set spec.suspend. " + _RETRIED,
    "Stalled": "Find the last range in the log, and check the file that it reads. spec.stallTimeoutSeconds is "
    "{stall_s}: raise it where one range takes longer. " + _RETRIED,
    "CommitMissing": "The next attempt proves what the last one has written, in seconds. " + _RETRIED,
    "PlanNotReported": _RETRIED,
    "PlanLost": _POD_LOG,
    "PlanDeadline": _POD_LOG,
    "DeadlineExceeded": "Raise spec.activeDeadlineSeconds: the run continues from the finished work.",
    "AppFailed": _POD_LOG,
    "RayJobFailed": _POD_LOG,
    "SubmissionFailed": _POD_LOG,
    "ValidationFailed": _POD_LOG,
    "Failed": "Read the message, the last failures and the log above, and correct what they name.",
    "Bug": _REPORT,
    "ApiServerAway": _RETRIED,
    "ReportDenied": "Ask who manages the ValidatingAdmissionPolicy and the binding that the message names. If it is "
    "the operator's own, see that the operator runs: it names the Pod that may report. {retried}",
    "CheckpointMissing": "The job was deleted while its Pods ran: nothing to do.",
    # the job's own fields
    "SpecInvalid": "Correct the field that the message names and {again}. `tokjob validate FILE` checks a manifest.",
    "SpecNotFound": _COMMAND,
    "SourceInvalid": "Correct spec.source.uris, textField or format, as the message says, and {again}. Or put the "
    "files where it looks; after that, set a new spec.rerunToken.",
    "SourceNotReadable": "Give the job's ServiceAccount read access to the source, with the command of the message, or "
    "credentials by spec.env; then {again}.",
    "StorageNotUsable": "Correct or remove the variable that the message names in spec.env.",
    "SplitEmpty": "Ask for fewer leading shards, a smaller spec.output.shards.tokens or a larger share, and {again}.",
    "ShardEmpty": "Raise spec.output.shards.tokens, lower spec.documents.maxBytes, or add output.shuffle, and {again}.",
    "ShardTooLarge": "Lower spec.output.shards.tokens, and {again}.",
    "ShuffleTooLarge": "Split spec.source into several jobs, or remove spec.output.shuffle, and {again}.",
    "TokenizerUnavailable": "Correct spec.tokenizer.name; for a gated model give the Pods HF_TOKEN by spec.env. Then "
    "{again}.",
    "TokenizerInvalid": _TOKENIZER,
    "TokenizerLosesText": _TOKENIZER,
    "TokenizerUnsafe": _TOKENIZER,
    "FingerprintDiffers": "Correct spec.tokenizer.fingerprint, or put the tokenizer's file back and {same}. If it is a "
    "complete dataset that has the other tokenizer, choose another spec.output.uri.",
    "DelimiterRequired": "Set spec.tokenizer.delimiter.token, or position: None, and {again}.",
    "DelimiterUnknown": "Write a token of those in the message in spec.tokenizer.delimiter and {again}.",
    "PadRequired": "Set spec.output.sequence.pad, and {again}.",
    "PadUnknown": "Set spec.output.sequence.pad.token to one of those in the message, and {again}.",
    "PadUnsafe": "Set spec.output.sequence.pad to a special token, or to an id above the vocabulary, and {again}.",
    "EngineUnavailable": "Use one image for all Pods of the job, built as this project's Dockerfile does.",
    "EngineDiffers": _COMMAND,
    "EngineVoided": "Nothing to do: the next attempt continues with the reference engine. Report the document.",
    # the output
    "OutputNotWritable": "Give the job's ServiceAccount the permission that the message names on {output}, or choose "
    "another spec.output.uri; then {again}.",
    "OutputNotReadable": "Give the job's ServiceAccount read access to {output}, with the command of the message.",
    "OutputUnsafe": "Remove what the message names, or choose another spec.output.uri.",
    "OutputNested": "Choose a spec.output.uri beside the other output, not inside it, and {again}.",
    "OutputConflict": "Choose another spec.output.uri, or put the field that the message names back, and {again}. "
    "Remove nothing there while another job uses it: `kubectl get tkj -A -o wide` shows outputs.",
    "OutputFull": "Make room at {output}, or choose a larger disk. " + _RETRIED,
    "OutputLive": "A run is writing to {output}: wait until it has ended.",
    "OpenFilesLimit": "Raise the limit of open files of the node's containers. " + _RETRIED,
    "FileSizeLimit": "Set a smaller spec.output.shards.tokens, or another spec.output.uri, and {again}.",
    "TemporaryFolderFull": "Raise the ephemeral storage of the Pods. " + _RETRIED,
    "StorageFailed": "The store failed for minutes; the message quotes its error. " + _RETRIED,
    "DatasetCommitted": _COMMAND,
    **dict.fromkeys(
        (
            "TrainingFinished",
            "VocabTooLarge",
            "PatternFails",
            "CountsCorrupt",
            "TrainMemory",
            "TrainerDied",
            "CountsLost",
        ),
        _COMMAND,
    ),
    "NotADataset": _COMMAND,
    "NotAnOutput": _COMMAND,
    "SplitUnknown": _COMMAND,
    "TokenUnknown": _COMMAND,
    "TokenIsPadding": _COMMAND,
    "RowUnknown": _COMMAND,
    "HasRows": _COMMAND,
    "GroupUnknown": _COMMAND,
    "GroupsNotApart": _COMMAND,
    "FormatUnavailable": _COMMAND,
    # the data
    "SourceChanged": "Put the planned file back as it was and {same}. Or set a new rerunToken, which lists the source "
    "again.",
    "TokenizerChanged": "Put the tokenizer's file back, or use the image that began the run (spec.image).",
    "WriterChanged": "Use the image that began the run (spec.image), or another spec.output.uri.",
    "QuarantineExceeded": "List the documents: `tokjob show --quarantined {output}`. Correct the source, or raise "
    "spec.maxQuarantined: the run continues from the finished work.",
    "CorruptFile": _FILE,
    "EmptyFile": _FILE,
    "WrongEncoding": _FILE,
    "SchemaMismatch": _FILE,
    "UnsupportedFile": _FILE,
    "NoDocuments": "Check spec.source.uris and spec.source.textField, or raise spec.documents.maxBytes or the shares "
    "of spec.source.groups, and {again}.",
    "RecordCorrupt": "Do as the message says: put the file back, or delete it; where it is the plan of an unfinished "
    "run, remove the run (`tokjob clean {output}`). Then {same}.",
    "TableMissing": _TABLE,
    "TableCorrupt": _TABLE,
    "QuarantineCorrupt": "Check the disk of {output}; then {same}.",
    "ShardDamaged": _MISMATCHED,
    "SidecarCorrupt": _MISMATCHED,
    "DatasetIncomplete": _MISMATCHED,
    "DatasetDamaged": _MISMATCHED,
    # machines
    "WorkerDied": "Usually a lack of memory: raise spec.workers.resources.limits.memory. " + _RETRIED,
    "NoCluster": _RETRIED,
    "NoWorkers": "Give the workers more memory than 700 MiB a CPU (spec.workers.resources). " + _RETRIED,
    "ClusterMismatch": "Use one image for head and workers: leave spec.image to one value for all Pods.",
    "SegmentLost": "Check whether another program deletes files below {output}/_tokenization. " + _RETRIED,
    "QuarantineLost": _RETRIED,
    "ShardChanged": "Check which program writes to {output}. " + _RETRIED,
    "NotDeterministic": _REPORT,
    "NotConserved": _REPORT,
    "TokenizerBroken": _REPORT,
    "NotInCluster": _COMMAND,
    "MainGuardMissing": _COMMAND,
    "JobNotFound": _COMMAND,
    "NotPermitted": _COMMAND,
}
