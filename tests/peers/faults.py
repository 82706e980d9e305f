"""What real servers do and asyncua does not: limits, slowness, wrong clocks, revised intervals. Each is a key of one JSON object.

    items_per_subscription, items_per_session   more monitored items than that: BadTooManyMonitoredItems
    refuse_whole                                the same, as a fault of the whole request
    subscriptions                               more subscriptions than that: BadTooManySubscriptions
    create_per_call, read_per_call, browse_per_call   more in a request: BadTooManyOperations
    announce                                    true: the limits per call stand in OperationLimits; else nothing does
    create_late                                 the first request for items is answered so many seconds late, when it is done
    create_slow                                 every request for items takes so many seconds for each of them
    created_at                                  the clock that security tokens are stamped with is so many seconds off
    token_ms                                    the longest lifetime of a security token
    session_late, activate_late                 sessions are created, activated so many seconds late
    keep_sessions                               true: sessions outlive their connections until they are closed or time out
    publish_ms                                  the shortest publishing interval
    frozen_sampling                             true: nothing that changes is published
"""

import asyncio
import copy
import datetime

from asyncua import ua
from asyncua.common.connection import SecureConnection
from asyncua.common.utils import ServiceError
from asyncua.server.internal_session import InternalSession
from asyncua.server.monitored_item_service import MonitoredItemService
from asyncua.server.subscription_service import SubscriptionService
from asyncua.server.uaprocessor import UaProcessor

# What the server was asked, for tests that count.
counts = {"renewals": 0, "sessions_created": 0, "largest_create": 0, "largest_read": 0}

LIMITS = {"read_per_call": 11705, "browse_per_call": 11710, "create_per_call": 11714}


def too_many(faults, key, asked):
    if key in faults and asked > faults[key]:
        raise ServiceError(ua.StatusCodes.BadTooManyOperations)


def items(faults):
    create = SubscriptionService.create_monitored_items
    late = [faults.get("create_late", 0)]

    async def create_monitored_items(self, params):
        asked = params.ItemsToCreate
        counts["largest_create"] = max(counts["largest_create"], len(asked))
        too_many(faults, "create_per_call", len(asked))
        have = {key: len(sub.monitored_item_srv._monitored_items) for key, sub in self.subscriptions.items()}
        room = min(
            faults.get("items_per_subscription", 1 << 30) - have.get(params.SubscriptionId, 0),
            faults.get("items_per_session", 1 << 30) - sum(have.values()),
        )
        if faults.get("refuse_whole") and len(asked) > room:
            raise ServiceError(ua.StatusCodes.BadTooManyMonitoredItems)
        params.ItemsToCreate = asked[: max(room, 0)]
        results = await create(self, params)
        refused = ua.MonitoredItemCreateResult()
        refused.StatusCode = ua.StatusCode(ua.StatusCodes.BadTooManyMonitoredItems)
        seconds, late[0] = late[0] + faults.get("create_slow", 0) * len(asked), 0
        await asyncio.sleep(seconds)
        return results + [copy.copy(refused) for _ in asked[len(results):]]

    SubscriptionService.create_monitored_items = create_monitored_items

    subscribe = SubscriptionService.create_subscription

    async def create_subscription(self, params, *others, **named):
        if len(self.subscriptions) >= faults.get("subscriptions", 1 << 30):
            raise ServiceError(ua.StatusCodes.BadTooManySubscriptions)
        params.RequestedPublishingInterval = max(params.RequestedPublishingInterval, faults.get("publish_ms", 0))
        return await subscribe(self, params, *others, **named)

    SubscriptionService.create_subscription = create_subscription


def calls(faults):
    read, browse = InternalSession.read, InternalSession.browse

    async def limited_read(self, params):
        if self.external:
            counts["largest_read"] = max(counts["largest_read"], len(params.NodesToRead))
            too_many(faults, "read_per_call", len(params.NodesToRead))
        return await read(self, params)

    async def limited_browse(self, params):
        if self.external:
            too_many(faults, "browse_per_call", len(params.NodesToBrowse))
        return await browse(self, params)

    InternalSession.read, InternalSession.browse = limited_read, limited_browse


def tokens(faults):
    opening = SecureConnection.open

    def opened(self, params, server):
        counts["renewals"] += params.RequestType == ua.SecurityTokenRequestType.Renew
        response = opening(self, params, server)
        # A copy: what the server itself goes by stays right.
        response.SecurityToken = token = copy.copy(response.SecurityToken)
        token.CreatedAt += datetime.timedelta(seconds=faults.get("created_at", 0))
        token.RevisedLifetime = min(token.RevisedLifetime, faults.get("token_ms", token.RevisedLifetime))
        return response

    SecureConnection.open = opened


def sessions(faults):
    create = InternalSession.create_session

    async def create_session(self, *arguments, **named):
        counts["sessions_created"] += 1
        await asyncio.sleep(faults.get("session_late", 0))
        return await create(self, *arguments, **named)

    InternalSession.create_session = create_session

    process = UaProcessor._process_message
    activate = ua.NodeId(ua.ObjectIds.ActivateSessionRequest_Encoding_DefaultBinary)

    async def process_message(self, typeid, *arguments):
        if typeid == activate:
            await asyncio.sleep(faults.get("activate_late", 0))
        return await process(self, typeid, *arguments)

    UaProcessor._process_message = process_message

    closes = UaProcessor._should_close_session_on_transport_loss
    UaProcessor._should_close_session_on_transport_loss = (
        lambda self: not faults.get("keep_sessions") and closes(self))


def frozen(faults):
    callback = MonitoredItemService.datachange_callback

    async def datachange_callback(self, handle, value, error=None):
        if not faults.get("frozen_sampling"):
            await callback(self, handle, value, error)

    MonitoredItemService.datachange_callback = datachange_callback


def apply(faults):
    for fault in (items, calls, tokens, sessions, frozen):
        fault(faults)


async def announce(server, faults):
    """Says the limits per call, or has no node that says any, as small PLCs have none."""
    for key, number in LIMITS.items():
        node = server.get_node(ua.NodeId(number))
        if faults.get("announce"):
            await server.write_attribute_value(
                node.nodeid, ua.DataValue(ua.Variant(faults.get(key, 0), ua.VariantType.UInt32)))
        else:
            await server.delete_nodes([node])
